"""How to train, whatever is trained: the numbers, the command line that gives them, and the learning rate's course."""
import dataclasses
import math
from dataclasses import dataclass

from aft_train_cli import is_taken, place_of

from .export import DTYPES

OPTIMISERS = ("adamw", "muon")
SCHEDULES = ("line", "cosine", "root")
TRAIN_DTYPES = ("auto", "f32", "bf16")
COSINE_LEAST = 0.01  # of the highest rate, where a cosine ends: DeiT's 1e-5 of 1e-3
MOST = {"threads": 1024, "seed": (1 << 32) - 1, "minutes": 1e6}  # PyTorch takes far more of neither of the first two


# Of the options that every trainer has.
HELP = {
    "steps": "steps to train", "batch": "samples in a step", "lr": "highest learning rate",
    "warmup": "steps in which the learning rate rises to it",
    "schedule": "how it falls then: along a line to 0, half a cosine to a hundredth, or as 1 / sqrt(step)",
    "decay": "last part of the run over which a line falls to 0; 1: all of it",
    "weight_decay": "decoupled, of the blocks' matrices and the patch embedding",
    "optimizer": "muon: the blocks' matrices by Muon, all else by AdamW", "beta2": "of AdamW",
    "clip": "largest norm of the gradient; 0: any",
    "ema": "decay of the weights' average, which is then what is measured and written; 0: none",
    "seed": "of all that is random", "log_every": "steps between rows of log.csv",
    "evaluate_every": "steps between measurements on what is held out", "save_every": "steps between checkpoints",
    "threads": "0: one for each processor",
    "train_dtype": "what to compute in meanwhile; auto: bf16 where the machine has arithmetic for it",
    "compile": "compile the model with torch.compile first",
}


class TrainError(ValueError):
    """What keeps a run from starting or going on; the text says what was wrong and what was expected."""


@dataclass
class Recipe:
    """How to train, whatever is trained."""

    steps: int  # with minutes: of a plan that is stretched to them, which warmup and decay are parts of
    batch: int
    lr: float
    minutes: float = 0.0  # to train in all, whatever number of steps that is; 0: for `steps`
    warmup: int = 100  # steps of linear warm-up
    schedule: str = "line"  # or "cosine" (DeiT), "root" (Vaswani et al. 2017, section 5.3)
    decay: float = 1.0  # of a line: the last part of the run over which the rate falls to 0; 1 is all of it
    weight_decay: float = 0.1  # of the blocks' matrices and the patch embedding; decoupled
    optimizer: str = "adamw"  # muon: the blocks' matrices by Muon, all else by AdamW
    beta2: float = 0.98
    clip: float = 1.0  # largest norm of the gradient; 0 is none
    ema: float = 0.0  # decay of the weights' average, which is then what is evaluated and exported; 0 is none
    seed: int = 0
    log_every: int = 20  # steps between rows of log.csv
    evaluate_every: int = 500
    save_every: int = 100
    threads: int = 0  # 0: one for each processor
    train_dtype: str = "auto"  # auto: bf16 autocast where the machine has bf16 arithmetic
    compile: bool = False

    CHANGEABLE = ("steps", "minutes", "log_every", "evaluate_every", "save_every")  # what a resumed run may change

    def __post_init__(self):
        for key in ("steps", "batch", "log_every", "evaluate_every", "save_every"):
            if getattr(self, key) < 1:
                raise TrainError(f"--{key.replace('_', '-')} is {getattr(self, key)}, expected 1 or more")
        for key in ("minutes", "warmup", "weight_decay", "clip", "seed", "threads"):
            if not getattr(self, key) >= 0:
                raise TrainError(f"--{key.replace('_', '-')} is {getattr(self, key)}, expected 0 or more")
        for key, most in MOST.items():
            if getattr(self, key) > most:
                raise TrainError(f"--{key} is {getattr(self, key)}, expected at most {most:.12g}")
        if not self.lr > 0:
            raise TrainError(f"--lr is {self.lr}, expected a positive number")
        for key in ("decay", "ema", "beta2"):
            if not 0 <= getattr(self, key) <= 1:
                raise TrainError(f"--{key} is {getattr(self, key)}, expected 0 to 1")


def add_arguments(parser, defaults):
    """Add an option for every field of Recipe to an argparse parser; `defaults` is a Recipe, None shown as 'preset'."""
    group = parser.add_argument_group("training")
    group.add_argument("--minutes", type=float, metavar="M",
                       help="train for so long instead of --steps; the learning rate rises and falls within that time")
    choices = {"optimizer": OPTIMISERS, "schedule": SCHEDULES, "train_dtype": TRAIN_DTYPES}
    for f in dataclasses.fields(Recipe):
        value, name = getattr(defaults, f.name), "--" + f.name.replace("_", "-")
        if f.name == "minutes":
            continue
        if f.type is bool or f.type == "bool":
            group.add_argument(name, action="store_true", default=value, help=HELP[f.name])
        else:
            group.add_argument(name, type=type(value), default=None, choices=choices.get(f.name),
                               metavar=None if f.name in choices else "N" if isinstance(value, int) else "X",
                               help=f"{HELP[f.name]} ({value})")
    group = parser.add_argument_group("result")
    group.add_argument("--run", metavar="FOLDER", help="the run's folder, from which one that was interrupted goes on; "
                                                       "with --minutes it can be left out, and nothing is kept")
    group.add_argument("--out", metavar="MODEL_DIR",
                       help="where to write the model (FOLDER/model, or models/ and the name of what is learnt)")
    group.add_argument("--license", metavar="NAME", default="unknown",
                       help="the model's licence, as its card gives it: an identifier such as cc-by-sa-4.0 (unknown)")
    group.add_argument("--aft", metavar="PROGRAM", help="aft, to measure on what was held out what bf16 and int8 cost, "
                                                        "and write it to precision.json (none)")
    group.add_argument("--dtype", choices=DTYPES, default="f32", help="what to store its weights in (f32)")


def called(name):
    """How the program of that name is called: a verb as it is, a module by Python."""
    return name if name.startswith("aft-train ") else f"python -m {name}"


def settle(args, data):
    """Refuse what contradicts about a run's length and place; args.out becomes where a run without folder ends.

    data: the path of what is learnt, whose name the model then gets. Raises TrainError.
    """
    if args.minutes is None:
        if args.run is None:
            raise TrainError("expected --minutes M, to train for so long, or --run FOLDER, to train for --steps and to "
                             "keep there what it takes to go on after an interruption")
        return
    if not args.minutes > 0:
        raise TrainError(f"--minutes is {args.minutes:g}, expected more than 0")
    for key in ("steps", "warmup"):
        if getattr(args, key) is not None:
            raise TrainError(f"--{key} {getattr(args, key)} counts steps, expected it without --minutes")
    if args.run is None and args.out is None:
        args.out = place_of(data)
        if args.out.exists():
            raise TrainError(is_taken(args.out))


def recipe_of(args, defaults):
    """The Recipe of parsed arguments: `defaults` with what was given."""
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Recipe)}
    recipe = dataclasses.replace(defaults, **{k: v for k, v in given.items() if v is not None})
    if args.decay is not None and recipe.schedule != "line":
        raise TrainError(f"--decay {args.decay:g} is of a line, expected --schedule line with it, not "
                         f"{recipe.schedule}")
    return recipe


def schedule(recipe, step):
    """Factor of the learning rate at a step, or between two: up along a line, then down as the recipe says."""
    rise = (step + 1) / max(1, recipe.warmup)
    if recipe.schedule == "root":
        return min(rise, max(1, recipe.warmup) ** 0.5 / (step + 1) ** 0.5)
    if recipe.schedule == "cosine":
        return min(rise, COSINE_LEAST + (1 - COSINE_LEAST) * (1 + math.cos(math.pi * step / recipe.steps)) / 2)
    return min(1.0, rise, (recipe.steps - step) / max(1, round(recipe.decay * recipe.steps)))
