"""Train models again, each by the command in its card, and hold what comes of it against the card: aft-train again
MODEL_DIR... --data FOLDER --run FOLDER.

What was interrupted goes on with the same command. Another machine rounds otherwise, so that figures may differ a
little: TOLERANCE says how much worse is no longer the same.
"""
import argparse
import os
import shlex
import sys
from pathlib import Path

import aft_train_cli
from aft_train_cli import TRAINERS, VERBS

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
    """[verb, argument, ...] that a card says the model was trained by. Raises ValueError."""
    words = shlex.split(next((line for line in section(card, "Training") if line.startswith("    ")), ""))
    modules = {f"python -m aft_train.{VERBS[verb][0]}": verb for verb in TRAINERS}  # as older cards name them
    if words[:1] == ["aft-train"] and words[1:2] and words[1] in TRAINERS:
        return words[1:]
    if " ".join(words[:3]) in modules:
        return [modules[" ".join(words[:3])], *words[3:]]
    raise ValueError("has no command under Training, expected aft-train and its arguments in an indented line")


def figures_of(card):
    """{measured on: (kind, value)} of a card's figures. Raises ValueError."""
    found = {}
    for line in section(card, "Quality"):
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        for unit, kind in METRICS.items():
            if len(cells) == 2 and cells[1].partition(" ")[2].startswith(unit) and not cells[0].startswith("baseline"):
                found[cells[0]] = kind, float(cells[1].partition(" ")[0])
    if not found:
        raise ValueError(f"has no figure under Quality, expected one in {', '.join(METRICS)}")
    return found


def held_against(name, before, now):
    """Print a model's rows of the table. -> how many figures are worse, or were not measured."""
    bad = 0
    for on, (kind, value) in before.items():
        worse = on not in now or (now[on][1] - value) / TOLERANCE[kind] > 1
        print(f"| {name} | {on} | {value:g} | {f'{now[on][1]:g}' if on in now else 'not measured'}"
              f"{' **worse**' * (worse and on in now)} |", flush=True)
        bad += worse
    return bad


def parser(prog="aft-train again"):
    p = argparse.ArgumentParser(prog=prog, description="Train models again by the commands in their cards.")
    p.add_argument("models", nargs="+", metavar="MODEL_DIR", help="models whose README.md is a card of aft-train's")
    p.add_argument("--data", metavar="FOLDER", default=".", help="where the files are that the commands name (.)")
    p.add_argument("--run", metavar="FOLDER", required=True, help="a run of each, by its name, and the new models")
    return p


def main(argv=None, name="aft_train.again"):
    args = parser(name).parse_args(argv)
    run, plans, bad = Path(args.run).resolve(), {}, 0
    try:
        for model in (Path(model).resolve() for model in args.models):
            card = (model / "README.md").read_text()
            if model.name in plans:
                raise ValueError(f"{model}: a second model of this name, expected each once")
            try:
                command = without(command_of(card), name, "--run", "--out", "--aft")
                plans[model.name] = command, figures_of(card)
            except ValueError as e:
                raise ValueError(f"{model}/README.md {e}") from None
        os.chdir(args.data)
    except (OSError, ValueError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    print("| model | measured on | by its card | now |\n| --- | --- | --- | --- |", flush=True)
    for model, (command, figures) in plans.items():
        out = run / model / "model"
        code = aft_train_cli.main([*command, "--run", str(run / model), "--out", str(out)])
        if code:
            return code
        bad += held_against(model, figures, figures_of((out / "README.md").read_text()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
