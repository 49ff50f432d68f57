"""Train models again, each by the commands in its card, and hold what comes of it against the card: aft-train again
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

TOLERANCE = {"accuracy": -1.0, "bits_per_byte": 0.02, "bits_per_dim": 0.02}  # below 0: where more is better


def section(card, title):
    """Lines of a section of a card."""
    lines = card.split(f"\n## {title}\n", 1)
    if len(lines) < 2:
        raise ValueError(f"has no section {title}, expected a card as trainers write it")
    return lines[1].split("\n## ", 1)[0].splitlines()


def commands_of(card):
    """[verb, argument, ...] of each command that a card says the model was trained by: those that made its teachers or
    what it began from, and in the end its own. Raises ValueError."""
    modules = {f"python -m aft_train.{VERBS[verb][0]}": verb for verb in TRAINERS}  # as older cards name them
    commands = []
    for line in (line for line in section(card, "Training") if line.startswith("    ")):
        words = shlex.split(line)
        if words[:1] == ["aft-train"] and words[1:2] and words[1] in TRAINERS:
            commands.append(words[1:])
        elif " ".join(words[:3]) in modules:
            commands.append([modules[" ".join(words[:3])], *words[3:]])
        else:
            raise ValueError(f"has {line.strip():.80} under Training, expected aft-train and its arguments")
    if not commands:
        raise ValueError("has no command under Training, expected aft-train and its arguments in an indented line")
    return commands


def planned(commands, folder, here, name):
    """Commands of a card as they are to be run: [([verb, argument, ...], the run's folder), ...], the last the model's.

    Each has a run of its own, in or below `folder`. A teacher or beginning that one of them makes is taken from there;
    others are where the card says, as seen from `here`.
    """
    p = argparse.ArgumentParser(prog=name, add_help=False, allow_abbrev=False)
    for option in ("--run", "--out", "--aft", "--init"):
        p.add_argument(option)
    p.add_argument("--teacher", nargs="+", default=[])
    made, plan = {}, []
    found = lambda model: str(made.get(Path(model), here / model))
    for i, command in enumerate(commands, 1):
        at = folder if i == len(commands) else folder / f"before-{i}"
        said, rest = p.parse_known_args(command)
        made[Path(said.out or Path(said.run or "", "model"))] = at / "model"
        others = {"--teacher": said.teacher, "--init": [said.init] if said.init else []}
        plan.append(([*rest, *(word for option, models in others.items() if models
                               for word in (option, *map(found, models)))], at))
    return plan


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
    p.add_argument("--data", metavar="FOLDER", default=".", help="where the files are that the commands name, but "
                   "for models, whose folders are named as from here (.)")
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
                plans[model.name] = planned(commands_of(card), run / model.name, Path.cwd(), name), figures_of(card)
            except ValueError as e:
                raise ValueError(f"{model}/README.md {e}") from None
        os.chdir(args.data)
    except (OSError, ValueError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    print("| model | measured on | by its card | now |\n| --- | --- | --- | --- |", flush=True)
    for model, (commands, figures) in plans.items():
        for command, at in commands:
            code = aft_train_cli.main([*command, "--run", str(at)])
            if code:
                return code
        bad += held_against(model, figures, figures_of((at / "model" / "README.md").read_text()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
