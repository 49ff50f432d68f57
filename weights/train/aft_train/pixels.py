"""Train a picture generator on any folder of class folders: aft-train pixels PICTURES --run FOLDER.

The task of the AFT paper's section 5.1: a picture is the sequence of its H * W * 3 sub-pixels, row by row, R G B
interleaved, each of 256 values that the model predicts from all before it. The measure is bits per dimension, the mean
-log2 p of a sub-pixel. The presets of tables in papers are those of papers.py; `demo` learns pictures of 16 x 16 with
Muon on a processor.
"""
import argparse
import functools
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from . import loop, papers, precision, quality
from .model import Model
from .model_config import CAUSAL_MIXERS, ModelConfig
from .pictures import in_folder, in_tar, read_pictures
from .recipe import Recipe, TrainError, add_arguments, recipe_of, settle
from .shape import add_options, block_options, mixer_of, settle_shape

# A kernel of 64 sees a row and five pixels back. Kernels are the same everywhere, and without the sum over all that
# lies farther they learn fastest: 4.24 bits after 400 steps where aft-local with a window of 96 has 5.16.
PRESETS = {  # name -> (shape, recipe)
    "demo": (dict(size=16, depth=6, dim=128, mixer="aft-conv", heads=32, kernel=64, global_sum=False, dropout=0.0,
                  flip=True, brightness=0),
             Recipe(steps=8000, batch=8, lr=8e-3, warmup=100, decay=0.8, weight_decay=0.1, optimizer="muon", beta2=0.95,
                    ema=0.998)),
    **papers.pixels(),
}
PICTURES_BYTES_MAX = 8 << 30  # of all sub-pixels, kept in memory


def part_names(path):
    """Names of the folders of class folders in a folder or tar: {"train", "test"}, or none where there are no parts."""
    if not Path(path).exists():
        return set()  # what is wrong is read_pictures' to say
    pictures, _, _ = (in_folder if Path(path).is_dir() else in_tar)(path, "")
    return {name[-3] for name in pictures if len(name) >= 3}


def choose(path, part, valid_part):
    """(Pictures, their numbers to learn; Pictures, their numbers to hold out), chosen alike every time.

    Without names the parts are `train` and `test` where there are such; without a part to hold out, the last tenth of
    a shuffle is held out.
    """
    parts = part_names(path)
    part = part or ("train" if "train" in parts else None)
    valid_part = valid_part or ("test" if "test" in parts - {part} else None)
    pictures = read_pictures(path, part=part)
    order = np.random.default_rng(0).permutation(len(pictures))
    if valid_part:
        held = read_pictures(path, part=valid_part)
        return pictures, order, held, np.random.default_rng(0).permutation(len(held))
    if len(pictures) < 2:
        raise TrainError(f"{path}: holds one picture, expected one to learn and one to hold out")
    edge = len(pictures) - max(1, len(pictures) // 10)
    return pictures, order[:edge], pictures, order[edge:]


def sub_pixels(pictures, numbers, config):
    """Some of the pictures as the model sees them: uint8 [len(numbers), T]. Raises TrainError if that is too much."""
    total = len(numbers) * config.context
    if total > PICTURES_BYTES_MAX:
        raise TrainError(f"{len(numbers)} pictures of {config.size[0]} x {config.size[1]} have {total} bytes, expected "
                         f"at most {PICTURES_BYTES_MAX}: choose a smaller --size")
    x = np.empty((len(numbers), config.context), np.uint8)
    for row, i in zip(x, tqdm(numbers, desc="decode", unit="picture", file=sys.stderr, mininterval=1.0)):
        row[:] = pictures.prepared(i, config).reshape(-1)
    return x


@functools.lru_cache(maxsize=2)  # a batch may lie in two epochs
def epoch_order(seed, epoch, count):
    """The order of `count` pictures in an epoch. The 1 keeps these random numbers apart from those of steps."""
    return np.random.default_rng([seed, epoch, 1]).permutation(count)


def picked(recipe, step, count):
    """Numbers of the pictures of a step: every epoch has all `count` of them once, in its own order. -> [batch]"""
    at = np.arange(step * recipe.batch, (step + 1) * recipe.batch)
    return np.array([epoch_order(recipe.seed, int(a) // count, count)[a % count] for a in at])


def augment(x, rng, flip, brightness):
    """Mirror half of the pictures, add up to +-brightness to all sub-pixels of each. uint8 [B, H, W, 3] -> another."""
    mirrored = rng.random(len(x)) < (0.5 if flip else 0)
    x = np.where(mirrored[:, None, None, None], x[:, :, ::-1], x)
    lighter = rng.integers(-brightness, brightness + 1, (len(x), 1, 1, 1))
    return np.clip(x + lighter, 0, 255).astype(np.uint8)


def parser(prog="aft-train pixels"):
    p = argparse.ArgumentParser(prog=prog, description="Train a generator of small pictures.")
    p.add_argument("pictures", help="what to learn: a folder of class folders of pictures, or a .tar, .tar.gz or "
                                    ".tar.xz of one; the classes do not matter")
    p.add_argument("--preset", choices=PRESETS, default="demo", metavar="NAME",
                   help="demo, or a row of a paper's table, as in weights/PAPERS.md (demo)")
    p.add_argument("--part", help="folder of the pictures to learn (default: train, where there is one)")
    p.add_argument("--valid-part", metavar="PART",
                   help="folder of the pictures to hold out (default: test, where there is one, else a tenth)")
    p.add_argument("--valid-limit", type=int, default=256, metavar="N", help="watch the run with N pictures (256)")
    p.add_argument("--test-limit", type=int, default=2000, metavar="N",
                   help="measure the finished model with N of the pictures held out (2000)")
    group = p.add_argument_group("model", "What is not given is the preset's.")
    group.add_argument("--size", type=int, metavar="N",
                       help="side in pixels that every picture's centre square is resized to")
    add_options(group, CAUSAL_MIXERS)
    group.add_argument("--flip", action=argparse.BooleanOptionalAction, help="mirror half of the pictures")
    group.add_argument("--brightness", type=int, metavar="N",
                       help="add up to this to all sub-pixels of a picture, or take it away")
    add_arguments(p, PRESETS["demo"][1])
    return p


def train(args):
    """Train, or go on, and export. -> False if it was told to stop before its end."""
    settle(args, args.pictures)
    shape, recipe = PRESETS[args.preset]
    shape = settle_shape(shape, args)
    recipe = recipe_of(args, recipe)
    for key, value, least in (("size", shape["size"], 1), ("brightness", shape["brightness"], 0),
                              ("valid-limit", args.valid_limit, 1), ("test-limit", args.test_limit, 1)):
        if value < least:
            raise TrainError(f"--{key} is {value}, expected {least} or more")
    side = (shape["size"],) * 2
    mixer = mixer_of(shape, 1, heads=1, kernel=96, window=96)
    config = ModelConfig("image-generation", mixer=mixer, size=side, context=3 * shape["size"] ** 2,
                         **block_options(shape))
    pictures, numbers, held_pictures, held_numbers = choose(args.pictures, args.part, args.valid_part)
    held = sub_pixels(held_pictures, held_numbers[: args.valid_limit], config)
    data = sub_pixels(pictures, numbers, config)

    torch.manual_seed(recipe.seed)
    model = Model(config, pos_embed=shape.get("pos_embed", True), dropout=shape["dropout"])

    def batch(step):
        x = data[picked(recipe, step, len(data))].reshape(-1, *config.size, 3)
        x = augment(x, loop.step_rng(recipe.seed, step), shape["flip"], shape["brightness"])
        return torch.from_numpy(x).flatten(1).long().to(run.device)

    def loss(forward, x):
        return F.cross_entropy(forward(x).flatten(0, 1).float(), x.flatten())

    options = {"task": config.task, "heads": mixer.heads, "kernel": mixer.kernel, **shape,
               "train": len(data), "sub_pixels_crc32": zlib.crc32(data), "valid": len(held)}
    run = loop.Run(args, model, recipe, options, batch=batch, loss=loss, metric="bits_per_dim",
                   evaluate=lambda m: quality.bits_per_element(m, held))
    def figures(model):
        test = sub_pixels(held_pictures, held_numbers[: args.test_limit], config)
        yield f"held out: {len(test):,} pictures", f"{quality.bits_per_element(model, test):.4f} bits per dim"

    return run.finish(
        f"{len(data):,} pictures to learn, {recipe.batch} of {config.context:,} sub-pixels a step",
        [held[0][: config.context // 2], held[-1][: config.context // 8]], figures,
        lambda seen: f"{len(data):,} pictures of {os.path.basename(args.pictures)} at {side[0]} x {side[1]}; {seen:,} "
                     "seen.",
        lambda folder: precision.write_pictures(folder, held_pictures, held_numbers[: args.valid_limit]))


def main(argv=None, name="aft_train.pixels"):
    return loop.main(name, parser, train, argv)


if __name__ == "__main__":
    sys.exit(main())
