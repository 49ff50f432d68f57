"""Train models again, each by the command in its card, and hold what comes of it against the card: aft-train again
MODEL_DIR... --data FOLDER --run FOLDER.

What was interrupted goes on with the same command. Another machine rounds otherwise, so that figures may differ a
little: TOLERANCE says how much worse is no longer the same.
"""
import argparse
import importlib
import os
import shlex
import sys
from pathlib import Path

from aft_train_cli import VERBS

from .card import METRICS
from .compare import without

TOLERANCE = {"accuracy": -1.0, "bits_per_byte": 0.02, "bits_per_dim": 0.02}  # below 0: where more is better


def section(card, title):
    """Lines of a section of a card."""
    lines = card.split(f"\n## {title}\n", 1)
    if len(lines) < 2:
        raise ValueError(f"has no section {title}, expected a card as trainers write it")
    return lines[1].split("\n## ", 1)[0].splitlines()


def command_of(card):
    """(module, arguments) of the command that a card says the model was trained by. Raises ValueError."""
    words = shlex.split(next((line for line in section(card, "Training") if line.startswith("    ")), ""))
    if words[:1] == ["aft-train"] and words[1:2] and words[1] in VERBS:
        return VERBS[words[1]][0], words[2:]
    if words[:2] == ["python", "-m"] and words[2:3] and words[2].startswith("aft_train."):
        return words[2].removeprefix("aft_train."), words[3:]
    raise ValueError("has no command under Training, expected aft-train and its arguments in an indented line")


def figures_of(card):
    """{measured on: (kind, value)} of a card's figures."""
    found = {}
    for line in section(card, "Quality"):
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        for unit, kind in METRICS.items():
            if len(cells) == 2 and cells[1].partition(" ")[2].startswith(unit) and not cells[0].startswith("baseline"):
                found[cells[0]] = kind, float(cells[1].partition(" ")[0])
    return found


def again(model, data, run):
    """Train a model again. -> its new card's text, or the exit code of a trainer that did not end well."""
    module, arguments = command_of(Path(model, "README.md").read_text())
    rest = without(arguments, "aft-train again", "--run", "--out")
    trainer = importlib.import_module("aft_train." + module)
    os.chdir(data)
    code = trainer.main([*rest, "--run", str(run), "--out", str(run / "model")])
    return code or Path(run, "model", "README.md").read_text()


def compared(model, new):
    """Rows of a table of a model's figures, by its card and now, and how many of them are worse."""
    rows, worse = [], 0
    now = figures_of(new)
    for on, (kind, value) in figures_of(Path(model, "README.md").read_text()).items():
        if on in now:
            bad = (now[on][1] - value) / TOLERANCE[kind] > 1
            rows.append(f"| {Path(model).name} | {on} | {value:g} | {now[on][1]:g}{' **worse**' * bad} |")
            worse += bad
    return rows, worse


def parser(prog="aft-train again"):
    p = argparse.ArgumentParser(prog=prog, description="Train models again by the commands in their cards.")
    p.add_argument("models", nargs="+", metavar="MODEL_DIR", help="models whose README.md is a card of aft-train's")
    p.add_argument("--data", metavar="FOLDER", default=".", help="where the files are that the commands name (.)")
    p.add_argument("--run", metavar="FOLDER", required=True, help="a new run of each, by its name, and the new models")
    return p


def main(argv=None, name="aft_train.again"):
    args = parser(name).parse_args(argv)
    models, run, worse = [Path(model).resolve() for model in args.models], Path(args.run).resolve(), 0
    table = ["| model | measured on | by its card | now |", "| --- | --- | --- | --- |"]
    for model in models:
        try:
            made = again(model, Path(args.data).resolve(), run / model.name)
        except (OSError, ValueError) as e:
            print(f"{name}: {model}: {getattr(e, 'strerror', None) or e}", file=sys.stderr)
            return 2
        if not isinstance(made, str):
            return made
        rows, bad = compared(model, made)
        table, worse = table + rows, worse + bad
    print("\n".join(table))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
