"""Train text classifiers of several mixers with one budget and compare them: aft-train compare TEXTS --run FOLDER.

Everything but the mixer is what aft-train classify-text takes and the same for all. FOLDER has a run for each mixer,
and in the end README.md, a table of them, and curves.png. What was interrupted goes on with the same command.
"""
import argparse
import csv
import shlex
import sys
from pathlib import Path

from . import classify_text
from .export import load
from .model_config import MIXERS as ALL_MIXERS
from .recipe import TrainError, called
from .shape import settle_shape

MIXERS = ("attention", "simple-attention", "sima", "fastformer", "aft-simple", "aft-conv")


def figures(run):
    """What a finished run's card, log and model say of it."""
    card, model = (run / "model" / "README.md").read_text(), load(run / "model")
    quality = {line.split(" | ")[0].strip("| "): line.split(" | ")[1].strip("| ")
               for line in card.split("## Quality")[1].splitlines() if line.startswith("| ") and "---" not in line}
    with open(run / "log.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    return {"parameters": model.parameter_count(), "steps": int(rows[-1]["step"]),
            "seconds": float(rows[-1]["seconds"]), "loss": float(rows[-1]["loss"]),
            "quality": {k: v for k, v in quality.items() if k != "measured on"}}


def draw(folder, runs):
    """curves.png: held-out accuracy over the steps, a line for each mixer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=100)
    for mixer, run in runs.items():
        with open(run / "log.csv", newline="") as f:
            held = [(int(r["step"]), float(r["accuracy"])) for r in csv.DictReader(f) if r.get("accuracy")]
        axes.plot(*zip(*held), marker="o", ms=3, lw=1, label=mixer)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out accuracy in %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(folder / "curves.png")
    plt.close(figure)


def table(told, command):
    """README.md of the runs, {mixer: figures}."""
    measured = list(next(iter(told.values()))["quality"])
    rows = [f"| {mixer} | {f['parameters']:,} | {f['steps']:,} | {f['seconds']:.0f} | {f['loss']:.4f} | "
            + " | ".join(f["quality"][m] for m in measured) + " |" for mixer, f in told.items()]
    return (f"# One budget, {len(told)} mixers\n\n    {command}\n\n"
            f"| mixer | parameters | steps | seconds | last loss | {' | '.join(measured)} |\n"
            + "| --- " * (5 + len(measured)) + "|\n" + "\n".join(rows)
            + "\n\n![held-out accuracy over the steps](curves.png)\n")


def parser(prog="aft-train compare"):
    p = classify_text.parser(prog)
    p.description = "Train text classifiers of several mixers with one budget, and compare them."
    p.add_argument("--mixers", metavar="A,B", default=",".join(MIXERS), help=f"({','.join(MIXERS)})")
    return p


def without(argv, prog, *options):
    """An argument list without some options and their values."""
    p = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    for option in options:
        p.add_argument(option)
    return p.parse_known_args(argv)[1]


def train(args, argv, name):
    """Train each mixer's run, or go on with it -> the exit code of the first that does not end well, or 0."""
    rest = without(argv, name, "--run", "--mixers")
    each = {mixer: [*rest, "--mixer", mixer, "--run", str(Path(args.run, mixer))] for mixer in args.mixers.split(",")}
    for mixer, given in each.items():  # what one of them refuses is found before the first is trained
        if mixer not in ALL_MIXERS:
            raise TrainError(f"--mixers has {mixer}, expected some of {','.join(ALL_MIXERS)}")
        settle_shape(classify_text.PRESETS[args.preset][0], classify_text.parser(name).parse_args(given))
    for given in each.values():
        code = classify_text.main(given)
        if code != 0:
            return code
    return 0


def main(argv=None, name="aft_train.compare"):
    argv = list(sys.argv[1:] if argv is None else argv)
    args = parser(called(name)).parse_args(argv)
    try:
        if args.run is None or args.mixer or args.out:
            raise TrainError("expected --run FOLDER, which has a run for each of --mixers, and no --mixer and no --out")
        code = train(args, argv, name)
    except TrainError as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    if code != 0:
        return code
    folder, runs = Path(args.run), {mixer: Path(args.run, mixer) for mixer in args.mixers.split(",")}
    (folder / "README.md").write_text(table({mixer: figures(run) for mixer, run in runs.items()},
                                            shlex.join([*called(name).split(), *argv])))
    draw(folder, runs)
    print(folder / "README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
