"""Train text classifiers of several mixers with one budget and compare them: aft-train compare TEXTS --run FOLDER.

Everything but the mixer is what aft-train classify-text takes and the same for all. FOLDER has a run for each mixer,
and in the end README.md, a table of them, and curves.png. What was interrupted goes on with the same command.
"""
import csv
import json
import sys
from pathlib import Path

from . import classify_text
from .export import load

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


def without(argv, option):
    """An argument list without an option and its value."""
    at = argv.index(option) if option in argv else len(argv)
    return argv[:at] + argv[at + 2 :]


def main(argv=None, name="aft_train.compare"):
    argv = list(sys.argv[1:] if argv is None else argv)
    args = parser(name).parse_args(argv)
    if "--run" not in argv or args.mixer or args.out or ("--mixers" not in argv and args.mixers != ",".join(MIXERS)):
        print(f"{name}: expected --run FOLDER and --mixers A,B as two words each, and neither --mixer nor --out",
              file=sys.stderr)
        return 2
    folder, rest = Path(args.run), without(without(argv, "--run"), "--mixers")
    runs = {mixer: folder / mixer for mixer in args.mixers.split(",")}
    for mixer, run in runs.items():
        if (run / "model" / "config.json").exists() and json.loads((run / "run.json").read_text())["mixer"] == mixer:
            continue  # it had ended
        code = classify_text.main([*rest, "--mixer", mixer, "--run", str(run)], name)
        if code != 0:
            return code
    (folder / "README.md").write_text(table({mixer: figures(run) for mixer, run in runs.items()},
                                            " ".join([name, *argv])))
    draw(folder, runs)
    print(folder / "README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
