"""Train a picture classifier: aft-train pictures PICTURES --minutes 2, or --run FOLDER.

PICTURES is a folder of class folders or a tar of one. The preset `quick` is for minutes, `demo` for small pictures and
one processor, and `small` for more time. Those of a table in the AFT paper are in papers.py, with DeiT's recipe.
"""
import argparse
import ctypes
import dataclasses
import functools
import os
import signal
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader

from . import augment, loop, papers, pictures, precision, quality
from .deit import IMAGENET_MEAN, IMAGENET_STD
from .export import model_input
from .model import Model
from .model_config import HEADED_MIXERS, MIXERS, POOLINGS, ModelConfig
from .recipe import Recipe, TrainError, add_arguments, recipe_of, settle
from .shape import BLOCK_OPTIONS, MIXER_OPTIONS, add_options, block_options, flag, given, mixer_of, settle_shape

SMALL = dict(mixer="aft-conv", pooling="mean", resize_to=32, size=32, patch=4, heads=32, kernel=5, dropout=0.0,
             drop_path=0.0, crop="shifted", shift=4, rand_augment=0, magnitude=9, erase=0.0, mixup=0.0, cutmix=0.0,
             smoothing=0.1, repeats=1)

PRESETS = {  # name -> (shape and augmentation, recipe)
    "quick": (dict(SMALL, depth=4, dim=96, heads=16),
              Recipe(steps=1000, batch=32, lr=6e-3, warmup=50, decay=0.7, weight_decay=0.1, optimizer="muon",
                     beta2=0.95, ema=0.99)),
    "demo": (dict(SMALL, depth=6, dim=128),
             Recipe(steps=4800, batch=128, lr=6e-3, warmup=200, decay=0.7, weight_decay=0.1, optimizer="muon",
                    beta2=0.95, ema=0.998)),
    "small": (dict(SMALL, depth=8, dim=192, patch=2, drop_path=0.1, rand_augment=2, magnitude=5, cutmix=1.0),
              Recipe(steps=60000, batch=256, lr=3e-3, warmup=500, decay=0.7, weight_decay=0.1, optimizer="muon",
                     beta2=0.95, ema=0.9995)),
    **papers.pictures(),
}
# What suits --minutes: the last preset whose least minutes and pictures are there. Fewer would be learnt by heart.
FITTING = {"quick": (0, 0), "demo": (20, 5000), "small": (480, 20000)}
LARGE = dict(size=64, resize_to=64, patch=8, shift=8)  # of pictures that show more so, for the same number of patches
LOOKED_AT = 100  # pictures that tell whether they are large
LEAST_AREA = 0.08  # of a picture that crop="resized" shows
CHANNELS_A_HEAD = 32  # of mixers other than aft-conv, unless --heads says otherwise
VALID_SHARE = 0.1  # of the pictures of a class, held out where none are named for it
DAMAGED = 2000  # pictures of those held out that are looked at in each damage
HELD_OUT_LEAST = 10  # of a class, likewise: of fewer, nobody could tell a good model from a bad one

# Options that --init's model answers, and the largest value of those that nothing else checks; 0 is the least.
MODEL_OPTIONS = ("mixer", *(k for k in (*BLOCK_OPTIONS, *MIXER_OPTIONS) if k not in ("dropout", "kernel_entropy")),
                 "size", "patch", "pooling", "resize_to", "mean", "std")
MOST = {"workers": 1024, "shift": pictures.SIDE_MAX, "rand_augment": 100, "magnitude": 10, "erase": 1, "mixup": 1000,
        "cutmix": 1000, "smoothing": 0.99, "dropout": 0.99, "drop_path": 0.99, "repeats": 100}
PR_SET_PDEATHSIG = 1  # of Linux's prctl


# ---- batches ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def epoch_order(seed, epoch, count, repeats):
    """The order of an epoch's `count` pictures, each there `repeats` times and changed anew (repeated augmentation,
    Hoffer et al. 2020, as DeiT has it: an epoch shows the first part of the pictures alone)."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return np.repeat(order[: -(-count // repeats)], repeats)[:count]


class Steps:
    """steps[n] -> (uint8 [B, H, W, 3], class numbers [B]) of step n: its pictures, cut, flipped and changed.

    They are a function of the seed and n alone. Every epoch has its own order of the pictures; those that fill no
    batch at its end are left out. A picture that cannot be read gives its PictureError in place of the batch: a worker
    that raised it would bring its traceback along.
    """

    def __init__(self, source, config, shape, recipe):
        self.source, self.config, self.shape, self.batch, self.seed = source, config, shape, recipe.batch, recipe.seed

    def __getitem__(self, step):
        count = len(self.source)
        epoch, at = divmod(step, count // self.batch)
        order = epoch_order(self.seed, epoch, count, self.shape["repeats"])
        chosen = order[at * self.batch : (at + 1) * self.batch].tolist()
        try:
            pixels = [self.changed(i, np.random.default_rng([self.seed, step, slot])) for slot, i in enumerate(chosen)]
        except pictures.PictureError as e:
            return e
        return np.stack(pixels), np.array([self.source.labels[i] for i in chosen])

    def changed(self, i, rng):
        """Picture i as it is learnt from this time: uint8 [H, W, 3]."""
        s = self.shape
        if s["crop"] == "resized":
            image = augment.random_resized_crop(self.source.image(i), rng, self.config.size, LEAST_AREA)
        else:
            image = augment.shifted(self.source.fitted(i, self.config), rng, s["shift"])
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if s["rand_augment"]:
            image = augment.rand_augment(image, rng, s["rand_augment"], s["magnitude"])
        pixels = np.array(image)
        augment.erase(pixels, rng, s["erase"])
        return pixels


def serve_only(parent, _):
    """Begin a worker's life: what stops the trainer, Ctrl-C above all, is the trainer's to act on, and ends it too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


class Batches:
    """batches(step) -> (x [B, 3, H, W] as the model takes it, target [B, classes] probabilities), on its device.

    Pictures are made by `workers` processes ahead of time, a batch each, or without any when they are asked for.
    """

    def __init__(self, source, model, shape, recipe, workers):
        self.steps, self.model = Steps(source, model.config, shape, recipe), model
        self.shape, self.recipe, self.workers = shape, recipe, workers
        self.next, self.made = None, None

    def start(self, step):
        """Make batches from a step on. Workers are forked, so that compressed pictures are in memory once."""
        # Of its own generator the loader draws a seed that nobody uses: from PyTorch's it would take dropout's numbers.
        loader = DataLoader(self.steps, batch_size=None, sampler=range(step, self.recipe.steps), collate_fn=lambda x: x,
                            num_workers=self.workers, multiprocessing_context="fork" if self.workers else None,
                            worker_init_fn=functools.partial(serve_only, os.getpid()), generator=torch.Generator())
        return iter(loader)

    def __call__(self, step):
        if step != self.next:
            self.made = self.start(step)
        self.next = step + 1
        made = next(self.made)
        if isinstance(made, pictures.PictureError):
            # Anew: workers end with this frame, which `made` would keep alive.
            raise pictures.PictureError(f"{made} (put a good picture in its place to go on: without it the run is "
                                        "another)")
        s, classes = self.shape, len(self.model.config.labels)
        x = model_input(self.model, made[0])
        target = F.one_hot(torch.from_numpy(made[1]).to(x.device), classes)
        target = target * (1 - s["smoothing"]) + s["smoothing"] / classes
        rng = np.random.default_rng([self.recipe.seed, step, self.recipe.batch])
        return augment.mix(x, target, rng, s["mixup"], s["cutmix"])


# ---- options ---------------------------------------------------------------------------------------------------------


def parser(prog="aft-train pictures"):
    p = argparse.ArgumentParser(prog=prog, description="Train a picture classifier.")
    p.add_argument("pictures", help="a folder of class folders, or a .tar, .tar.gz or .tar.xz of one")
    p.add_argument("--preset", choices=PRESETS, metavar="NAME",
                   help="quick, demo, small, or a row of a paper's table, as in weights/PAPERS.md (demo; with "
                        "--minutes, what suits them and the pictures)")
    p.add_argument("--part", help="the folder above the class folders to train on, if there are several ('train')")
    p.add_argument("--valid", metavar="PICTURES",
                   help="pictures to watch the run with (default: a tenth of each class, "
                        f"{HELD_OUT_LEAST} or more of it, left out)")
    p.add_argument("--valid-part", help="of --valid, or of the same folder or tar ('test')")
    p.add_argument("--workers", type=int, default=0, help="processes that make pictures ready ahead (0)")
    p.add_argument("--init", metavar="MODEL_DIR",
                   help="start from a model's weights; a head of other classes is made anew")
    group = p.add_argument_group("model", "What is not given is the preset's.")
    add_options(group, MIXERS)
    for key, text in (("size", "side of the pictures in pixels"), ("patch", "side of a patch in pixels"),
                      ("resize-to", "shorter side before the centre is cut out, when the model is used")):
        group.add_argument("--" + key, type=int, metavar="N", help=text)
    group.add_argument("--pooling", choices=POOLINGS, help="what the head sees of the tokens")
    for key, text in (("mean", "of red, green and blue, to take away (ImageNet's)"),
                      ("std", "to divide by then (ImageNet's)")):
        group.add_argument("--" + key, type=float, nargs=3, metavar="X", help=text)
    group = p.add_argument_group("pictures and regularisation", "What is not given is the preset's; 0 is none.")
    group.add_argument("--crop", choices=("shifted", "resized"),
                       help="the picture moved by --shift, or a random part of it brought to the size")
    for key, kind, text in (
            ("shift", int, "pixels that a picture moves at most"),
            ("rand-augment", int, "RandAugment's operations a picture"), ("magnitude", float, "their strength of 10"),
            ("erase", float, "share of the pictures of which a part is erased"), ("mixup", float, "alpha of mixup"),
            ("cutmix", float, "alpha of cutmix"), ("smoothing", float, "probability that is spread over all classes"),
            ("repeats", int, "times that a picture is in an epoch, changed anew each time (1)"),
            ("drop-path", float, "share of the last block's branches dropped, of those before less")):
        group.add_argument("--" + key, type=kind, metavar="N" if kind is int else "X", help=text)
    add_arguments(p, PRESETS["demo"][1])
    return p


def fitting(minutes, source):
    """The preset's name, and what of its shape is another, for so many minutes and these Pictures."""
    name = [name for name, least in FITTING.items() if minutes >= least[0] and len(source) >= least[1]][-1]
    sides = sorted(source.shorter_side(i) for i in quality.spread(len(source), LOOKED_AT))
    large = PRESETS[name][0]["size"] < LARGE["size"] <= sides[len(sides) // 2]
    return name, LARGE if large and name == "quick" else {}


def preset_of(args, source):
    """(shape and augmentation, recipe) that the command line names, or that suits the time and the Pictures."""
    if args.preset or args.minutes is None or args.init:
        return PRESETS[args.preset or "demo"]
    name, other = fitting(args.minutes, source)
    shape, recipe = PRESETS[name]
    return {**shape, **other}, recipe


def shape_of(args, preset):
    """A preset's shape and augmentation with what was given. Raises TrainError."""
    shape = settle_shape(preset, args)
    if args.heads is None and shape["mixer"] != preset["mixer"]:
        shape.pop("heads", None)
    if args.resize_to is None:
        shape["resize_to"] = shape["size"] * preset["resize_to"] // preset["size"]
    for key, value in {**shape, "workers": args.workers}.items():
        if key in MOST and not 0 <= value <= MOST[key]:
            raise TrainError(f"{flag(key)} is {value}, expected 0 to {MOST[key]}")
    shape["repeats"] = max(1, shape["repeats"])
    if shape.get("share_layers") and shape["drop_path"]:
        raise TrainError(f"--drop-path is {shape['drop_path']:g}, expected 0 with --share-layers: it grows from "
                         "block to block")
    if args.shift and shape["crop"] == "resized":
        raise TrainError(f"--shift {args.shift} goes with --crop shifted, not resized")
    if args.magnitude and not shape["rand_augment"]:
        raise TrainError(f"--magnitude {args.magnitude:g} is RandAugment's, expected --rand-augment 1 or more with it")
    return shape


def starting_model(args, shape, labels):
    """The Model to train: --init's with a head for these labels, or a fresh one. Raises TrainError, ValueError."""
    if args.init:
        clash = [key for key in given(args, MODEL_OPTIONS) if key not in ("size", "resize_to")]
        if clash:
            raise TrainError(f"{flag(clash[0])} is for a fresh model, expected --init {args.init} without it")
        model = quality.load_for(args.init, "image-classification").train()
        if args.size is not None or args.resize_to is not None:
            model.resize(model.config.size if args.size is None else (args.size,) * 2, args.resize_to)
        had = len(model.config.labels)
        if not model.relabel(labels):
            print(f"a fresh head: {args.init} has {had} other classes", file=sys.stderr)
    else:
        model = fresh_model(args, shape, labels)
    model.regularise(shape["dropout"], shape["drop_path"])
    return model


def fresh_model(args, shape, labels):
    """Of shapes that do not say so: heads of CHANNELS_A_HEAD, fewer if they do not divide dim, and windows of two rows
    of patches, so that those above and below are within them."""
    dim, side = shape["dim"], max(1, shape["size"] // max(1, shape["patch"]))
    few = max(1, dim // CHANNELS_A_HEAD)
    if args.heads is None and shape["mixer"] in HEADED_MIXERS:
        shape = {**shape, "heads": next(h for h in range(shape.get("heads", few), 0, -1) if dim % h == 0)}
    mixer = mixer_of(shape, 2, window=2 * side, kernel=5)
    config = ModelConfig("image-classification", mixer=mixer, labels=labels, size=(shape["size"],) * 2,
                         patch=(shape["patch"],) * 2, resize_to=shape["resize_to"], pooling=shape["pooling"],
                         mean=tuple(args.mean or IMAGENET_MEAN), std=tuple(args.std or IMAGENET_STD),
                         **block_options(shape))
    return Model(config, pos_embed=shape.get("pos_embed", mixer.type != "aft-conv"))


def options_of(args, shape, config, source):
    """What a run depends on, for run.json: all that the command line says, what --init's model is, and the pictures."""
    c, m = config, config.mixer
    side = lambda pair: pair[0] if len(set(pair)) == 1 else list(pair)
    names = [name.removeprefix(str(Path(args.pictures))) for name in source.names]
    own = {"mixer": m.type, "heads": m.heads, "kernel": side(m.kernel), "depth": c.depth, "dim": c.dim,
           "size": side(c.size), "patch": side(c.patch), "resize_to": c.resize_to or min(c.size), "mean": c.mean,
           "std": c.std}
    if m.type == "aft-local":
        own["window"] = m.window
    return {"task": c.task, **shape, **own, "init": args.init and os.path.abspath(args.init),
            "labels": c.labels, "pictures": len(source), "names_crc32": zlib.crc32(os.fsencode("\n".join(names)))}


def held_out(source, share, seed):
    """A Pictures -> two, the second with a share of each class, drawn at random: HELD_OUT_LEAST of it or more, but at
    most half of it. Raises TrainError."""
    rng, learnt, held = np.random.default_rng(seed), [], []
    for number, name in enumerate(source.classes):
        drawn = rng.permutation(np.flatnonzero(np.array(source.labels) == number)).tolist()
        if len(drawn) < 2:
            root = source.names[0].rsplit("/", 2)[0]
            raise TrainError(f"{root}: the class {name} has a single picture, expected two or more, to learn and to "
                             "hold out, or --valid")
        edge = min(max(round(len(drawn) * share), HELD_OUT_LEAST), len(drawn) // 2)
        held += drawn[:edge]
        learnt += drawn[edge:]

    def part(chosen):
        chosen = sorted(chosen)
        return pictures.Pictures(source.classes, [source.names[i] for i in chosen], [source.labels[i] for i in chosen],
                                 [source.sources[i] for i in chosen])

    return part(learnt), part(held)


def split(args, seed, source):
    """(Pictures to learn, Pictures to watch the run with). Raises TrainError, PictureError."""
    if args.valid or args.valid_part:
        held = pictures.read_pictures(args.valid or args.pictures, part=args.valid_part)
        single = sorted(set(source.classes) ^ set(held.classes))
        if single:
            use = "learn" if single[0] in source.classes else "watch the run with"
            raise TrainError(f"the class {single[0]} is among the pictures to {use} alone, expected the same classes "
                             "to learn and to watch the run with")
    else:
        return held_out(source, VALID_SHARE, seed)
    return source, held


# ---- training --------------------------------------------------------------------------------------------------------


def prepare(args):
    """-> (shape and augmentation, Recipe, Pictures to learn, Pictures to watch the run with). Raises ValueError."""
    settle(args, args.pictures)
    source = pictures.read_pictures(args.pictures, part=args.part)
    if len(source.classes) < 2:
        raise TrainError(f"{args.pictures} has the class {source.classes[0]} alone, expected two or more to tell apart")
    if source.left_out:
        print(f"{len(source.left_out)} files in {args.pictures} are left out, such as {source.left_out[0]}: pictures "
              f"end in {' '.join(pictures.SUFFIXES)} and lie in the folder of their class", file=sys.stderr)
    shape, recipe = preset_of(args, source)
    shape, recipe = shape_of(args, shape), recipe_of(args, recipe)
    source, held = split(args, recipe.seed, source)
    if args.minutes is not None and args.batch is None:
        recipe = dataclasses.replace(recipe, batch=min(recipe.batch, len(source)))
    if len(source) < recipe.batch:
        raise TrainError(f"{args.pictures} has {len(source)} pictures to learn, fewer than a batch: expected --batch "
                         f"{len(source)} or less, not {recipe.batch}")
    return shape, recipe, source, held


def train(args):
    """Train, or go on, and export. -> False if it was told to stop before its end."""
    shape, recipe, source, held = prepare(args)
    torch.manual_seed(recipe.seed)
    model = starting_model(args, shape, source.classes)
    if args.minutes is not None and shape["crop"] == "shifted":  # the time is for learning
        source.keep_fitted(model.config)
        held.keep_fitted(model.config)

    def loss(forward, pair):
        x, target = pair
        return F.cross_entropy(forward(x).float(), target)

    run = loop.Run(args, model, recipe, options_of(args, shape, model.config, source),
                   batch=Batches(source, model, shape, recipe, args.workers), loss=loss,
                   evaluate=lambda m: quality.accuracy(m, held), metric="accuracy",
                   logits=lambda m: quality.picture_logits(m, held))
    def figures(model, made):
        yield from quality.classifier_figures(f"held out: {len(held):,} pictures", *made)
        for name, change in augment.DAMAGES.items():
            made = quality.picture_logits(model, held.changed(change), DAMAGED)
            count = len(made[1])
            yield f"held out, {name}: {count:,} pictures", quality.rated(quality.percent_right(*made), count)
        yield "baseline: majority class", f"{quality.accuracy_of_commonest(source, held):.2f} % right"

    return run.finish(
        f"{len(source):,} pictures of {len(source.classes)} classes, {recipe.batch} a step",
        [held.prepared(i, model.config) for i in range(min(2, len(held)))], figures,
        lambda seen: f"{len(source):,} pictures of {Path(args.pictures).resolve().name} in {len(source.classes)} "
                     f"classes; {seen:,} seen.",
        lambda folder: precision.write_pictures(folder, held, range(len(held))))


def main(argv=None, name="aft_train.images"):
    return loop.main(name, parser, train, argv)


if __name__ == "__main__":
    sys.exit(main())
