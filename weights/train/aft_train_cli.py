"""aft-train: one command for all that aft_train does; `python -m aft_train` is the same.

Beside the package, not in it, since that brings PyTorch along: to be told of a wrong verb should not take seconds, and
Ctrl-C meanwhile should leave no traceback.
"""
import importlib
import os
import re
import signal
import sys
from pathlib import Path

VERBS = {  # verb -> (module, what it does)
    "pictures": ("images", "train a classifier of pictures: a folder with a folder of pictures for each label"),
    "text": ("text", "train a generator of text, byte by byte: any file"),
    "pixels": ("pixels", "train a generator of small pictures"),
    "classify-text": ("classify_text", "train a classifier of texts: a folder with a folder of texts for each label"),
    "languages": ("languages", "write texts in 47 languages, of Debian's packages, as texts to classify"),
    "listops": ("listops", "write ListOps, expressions whose value is their label, as texts to classify"),
    "compare": ("compare", "train text classifiers of several mixers with one budget, and tell their figures"),
    "convert": ("convert", "make models of checkpoints of others, change a model's precision, measure its quality"),
    "offsets": ("offsets", "draw what a classifier of pictures by attention gives to each offset"),
    "again": ("again", "train models again by the commands in their cards, and compare"),
    "check": ("check", "run a model's cases through PyTorch"),
}
USAGE = "usage: aft-train COMMAND ...\n\n" + "".join(f"  {verb:<15}{what}\n" for verb, (_, what) in VERBS.items())


TRAINERS = ("pictures", "text", "pixels", "classify-text")
PACKED = (".gz", ".xz")
NAME_MAX = 64  # of a model's name


def place_of(data):
    """Where a run without a folder ends: models/ and the name of what is learnt, without suffix, others as '-'."""
    path = Path(data).resolve()
    if not path.is_dir():
        path = path.with_suffix("") if path.suffix in PACKED else path
        path = path.with_suffix("")
    return Path("models", re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip(".-")[:NAME_MAX] or "model")


def is_taken(place):
    return f"{place} exists: --out {place} replaces it, another --out leaves it as it is"


def clash(argv):
    """What is certain to be refused by its place, before PyTorch is imported for it; None: the trainer knows more."""
    verb, data, *options = [*argv, ""][:2] + argv[2:]
    if verb not in TRAINERS or data[:1] in ("", "-") or not any(o.startswith("--min") for o in options):
        return None
    if any(o.startswith(("--o", "--r", "--h", "-h")) for o in options) or not place_of(data).exists():
        return None
    return is_taken(place_of(data))


def load(verb):
    """The verb's module. Ctrl-C ends the program at once: an exception may be swallowed in the middle of PyTorch's."""
    def stop(*_):
        os.write(sys.stderr.fileno(), f"aft-train {verb}: stopped before it began\n".encode())
        os._exit(130)
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        signal.signal(signal.SIGINT, stop)
    module = importlib.import_module("aft_train." + VERBS[verb][0])
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return module


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
    taken = clash(argv)
    if taken:
        print(f"aft-train {argv[0]}: {taken}", file=sys.stderr)
        return 2
    module = load(argv[0])
    return module.main(argv[1:], f"aft-train {argv[0]}")


if __name__ == "__main__":
    sys.exit(main())
