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

from .corpus import new_folder
from .texts import write_texts

OPERATORS = {">": max, "<": min, "|": lambda values: int(statistics.median(values)),
             "+": lambda values: sum(values) % 10}
OPERATOR_SHARE = 0.25  # of what an expression may have anywhere; the rest are digits
DEEPEST = 500  # what Python's stack has room for
DRAWN_MOST = 1_000_000  # in vain, before it is given up
FILES = {"train": 96_000, "valid": 2_000, "test": 2_000}  # as the Arena has them


def expression(rng, depth, deepest, arguments, most):
    """(text, value) of one of a depth, as the Arena's generate_tree draws it; one of more than `most` bytes may have
    only its beginning."""
    if depth >= deepest or rng.random() > OPERATOR_SHARE:
        digit = rng.randrange(10)
        return str(digit), digit
    parts, most = [], most - 2
    for _ in range(rng.randint(2, arguments)):
        parts.append(expression(rng, depth + 1, deepest, arguments, most))
        most -= len(parts[-1][0])
        if most < 0:
            break
    operator = rng.choice(list(OPERATORS))
    return operator + "".join(text for text, _ in parts) + "]", OPERATORS[operator]([value for _, value in parts])


def expressions(rng, count, shortest, longest, deepest, arguments, seen):
    """`count` (text, value) of more than `shortest` and fewer than `longest` bytes that are not in `seen`, then are."""
    drawn = 0
    with tqdm(total=count, unit="expression", disable=None, leave=False) as shown:
        while count > 0:
            text, value = expression(rng, 1, deepest, arguments, longest)
            drawn += 1
            if drawn > DRAWN_MOST:
                raise ValueError(f"of {DRAWN_MOST:,} expressions of --depth {deepest} none was another of --shortest "
                                 f"{shortest} and --longest {longest}, expected a wider range, or fewer of them")
            if shortest < len(text) < longest and text not in seen:
                seen.add(text)
                count, drawn = count - 1, 0
                shown.update()
                yield text, value


def parser(prog="aft-train listops"):
    p = argparse.ArgumentParser(prog=prog, description="Write ListOps as tables of texts and labels.")
    p.add_argument("folder", help="a new folder, for train.jsonl, valid.jsonl and test.jsonl")
    for key, count in FILES.items():
        p.add_argument("--" + key, type=int, default=count, metavar="N", help=f"expressions of that file ({count})")
    for key, value, what in (("shortest", 500, "fewest bytes, less one"), ("longest", 2000, "most bytes, and one more"),
                             ("depth", 10, "deepest nesting"), ("arguments", 10, "most arguments of an operator"),
                             ("seed", 0, "of all that is random")):
        p.add_argument("--" + key, type=int, default=value, metavar="N", help=f"{what} ({value})")
    return p


def main(argv=None, name="aft_train.listops"):
    args = parser(name).parse_args(argv)
    for key, least in {**dict.fromkeys(FILES, 0), "shortest": 0, "longest": args.shortest + 2, "depth": 2,
                       "arguments": 2}.items():
        if getattr(args, key) < least:
            print(f"{name}: --{key} is {getattr(args, key)}, expected {least} or more", file=sys.stderr)
            return 2
    if args.depth > DEEPEST:
        print(f"{name}: --depth is {args.depth}, expected {DEEPEST} at most", file=sys.stderr)
        return 2
    rng, seen, folder = random.Random(args.seed), set(), Path(args.folder)
    try:
        with new_folder(folder) as made:
            for key in FILES:
                rows = expressions(rng, getattr(args, key), args.shortest, args.longest, args.depth, args.arguments,
                                   seen)
                write_texts(made / f"{key}.jsonl", ((text, str(value)) for text, value in rows))
    except (OSError, ValueError) as e:
        print(f"{name}: {folder}: {getattr(e, 'strerror', None) or e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
