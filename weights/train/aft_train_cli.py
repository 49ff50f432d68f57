"""aft-train: one command for all that aft_train does; `python -m aft_train` is the same.

Beside the package, not in it, since that brings PyTorch along: to be told of a wrong verb should not take seconds, and
Ctrl-C meanwhile should leave no traceback.
"""
import importlib
import sys

VERBS = {  # verb -> (module, what it does)
    "pictures": ("images", "train a classifier of pictures: a folder with a folder of pictures for each label"),
    "text": ("text", "train a generator of text, byte by byte: any file"),
    "pixels": ("pixels", "train a generator of small pictures"),
    "convert": ("convert", "make models of checkpoints of others, change a model's precision, measure its quality"),
    "check": ("check", "run a model's cases through PyTorch"),
}
USAGE = "usage: aft-train COMMAND ...\n\n" + "".join(f"  {verb:<10}{what}\n" for verb, (_, what) in VERBS.items())


def main(argv=None):
    """-> exit code: 0, 2 for wrong usage, or the verb's own."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] in (["-h"], ["--help"]):
        print(USAGE + "\nSee aft-train COMMAND --help for the options of one.")
        return 0
    if argv[:1] == [] or argv[0] not in VERBS:
        found = f"unknown command {argv[0]!r}" if argv else "no command"
        print(f"aft-train: {found}, expected {', '.join(VERBS)}", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module("aft_train." + VERBS[argv[0]][0])
    except KeyboardInterrupt:
        print(f"aft-train {argv[0]}: stopped before it began", file=sys.stderr)
        return 130
    return module.main(argv[1:], f"aft-train {argv[0]}")


if __name__ == "__main__":
    sys.exit(main())
