"""aft-train: one command for all that the package does; `python -m aft_train` is the same."""
import importlib
import sys

VERBS = {  # verb -> (module, what it does)
    "pictures": ("images", "train a classifier of pictures: a folder with a folder of pictures for each label"),
    "text": ("text", "train a generator of text, byte by byte: any file"),
    "pixels": ("pixels", "train a generator of small pictures"),
    "convert": ("convert", "make models of checkpoints of others, change a model's precision, measure its quality"),
    "check": ("check", "run a model's cases through PyTorch"),
}
USAGE = "usage: aft-train VERB ...\n\n" + "".join(f"  {verb:<10}{what}\n" for verb, (_, what) in VERBS.items())


def called(name):
    """How the program of that name is called: a verb as it is, a module by Python."""
    return name if name.startswith("aft-train ") else f"python -m {name}"


def main(argv=None):
    """-> exit code: 0, 2 for wrong usage, or the verb's own."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] in (["-h"], ["--help"]):
        print(USAGE + "\naft-train VERB --help tells the options of a verb.")
        return 0
    if argv[:1] == [] or argv[0] not in VERBS:
        found = f"{argv[0]!r} is no verb" if argv else "no verb"
        print(f"aft-train: {found}, expected {', '.join(VERBS)}", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module("." + VERBS[argv[0]][0], __package__)  # PyTorch comes with it, in seconds
    except KeyboardInterrupt:
        return 130
    return module.main(argv[1:], f"aft-train {argv[0]}")
