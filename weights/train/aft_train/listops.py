"""Write ListOps of the Long Range Arena (Tay et al. 2021, 2.2.1; Nangia and Bowman 2018): aft-train listops FOLDER.

A text is an expression such as >29<47]0], the label its value, a digit: > is the largest of what follows up to its ],
< the smallest, | the median, + the sum modulo 10. It is the Arena's generator, with a byte for each of its tokens, so
that 500 to 2,000 tokens are as many bytes. Expressions of one file are all different, and no two files have one in
common.
"""
import argparse
import random
import statistics
import sys
from pathlib import Path

from tqdm import tqdm

OPERATORS = {">": max, "<": min, "|": lambda values: int(statistics.median(values)),
             "+": lambda values: sum(values) % 10}
OPERATOR_SHARE = 0.25  # of what an expression may have anywhere; the rest are digits
FILES = {"train": 96_000, "valid": 2_000, "test": 2_000}  # as the Arena has them


def expression(rng, depth, deepest, arguments):
    """(text, value) of one of a depth, as the Arena's generate_tree draws it."""
    if depth >= deepest or rng.random() > OPERATOR_SHARE:
        digit = rng.randrange(10)
        return str(digit), digit
    parts = [expression(rng, depth + 1, deepest, arguments) for _ in range(rng.randint(2, arguments))]
    operator = rng.choice(list(OPERATORS))
    return operator + "".join(text for text, _ in parts) + "]", OPERATORS[operator]([value for _, value in parts])


def expressions(rng, count, shortest, longest, deepest, arguments, seen):
    """`count` (text, value) of more than `shortest` and fewer than `longest` bytes that are not in `seen`, then are."""
    with tqdm(total=count, unit="expression", disable=None, leave=False) as shown:
        while count > 0:
            text, value = expression(rng, 1, deepest, arguments)
            if shortest < len(text) < longest and text not in seen:
                seen.add(text)
                count -= 1
                shown.update()
                yield text, value


def parser(prog="aft-train listops"):
    p = argparse.ArgumentParser(prog=prog, description="Write ListOps as tables of texts and labels.")
    p.add_argument("folder", help="a new folder, for train.tsv, valid.tsv and test.tsv")
    for key, count in FILES.items():
        p.add_argument("--" + key, type=int, default=count, metavar="N", help=f"expressions of that file ({count})")
    for key, value, what in (("shortest", 500, "fewest bytes, less one"), ("longest", 2000, "most bytes, and one more"),
                             ("depth", 10, "deepest nesting"), ("arguments", 10, "most arguments of an operator"),
                             ("seed", 0, "of all that is random")):
        p.add_argument("--" + key, type=int, default=value, metavar="N", help=f"{what} ({value})")
    return p


def main(argv=None, name="aft_train.listops"):
    args = parser(name).parse_args(argv)
    few = min(args.train, args.valid, args.test) < 0 or args.arguments < 2 or args.depth < 2
    if few or args.longest - args.shortest < 2:
        print(f"{name}: expected --longest above --shortest and one more, --arguments and --depth of 2 or more, and no "
              "counts below 0", file=sys.stderr)
        return 2
    rng, seen, folder = random.Random(args.seed), set(), Path(args.folder)
    try:
        folder.mkdir(parents=True)
        for key in FILES:
            rows = expressions(rng, getattr(args, key), args.shortest, args.longest, args.depth, args.arguments, seen)
            with open(folder / f"{key}.tsv", "w") as f:
                f.write("text\tlabel\n")
                f.writelines(f"{text}\t{value}\n" for text, value in rows)
    except OSError as e:
        print(f"{name}: {folder}: {e.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
