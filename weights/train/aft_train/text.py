"""Train a byte-level language model on any file: aft-train text FILE --minutes 2, or --run FOLDER.

The presets of tables in papers are those of papers.py; the others use Muon, which learns the same in about half the
steps on a processor. `quick` is for minutes.
"""
import argparse
import os
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F

from . import loop, papers, precision, quality, teachers
from .corpus import read_bytes, span
from .model import Model
from .model_config import CAUSAL_MIXERS, ModelConfig
from .recipe import Recipe, TrainError, add_arguments, recipe_of, settle
from .shape import add_options, block_options, mixer_of, settle_shape

PRESETS = {  # name -> (shape, recipe)
    "quick": (dict(depth=3, dim=96, mixer="aft-local", context=256, window=32, dropout=0.0),
              Recipe(steps=1000, batch=16, lr=1e-2, warmup=50, decay=0.7, weight_decay=0.1, optimizer="muon",
                     beta2=0.95, ema=0.99)),
    "demo": (dict(depth=6, dim=192, mixer="aft-local", context=512, window=32, dropout=0.0),
             Recipe(steps=2500, batch=16, lr=8e-3, warmup=200, decay=0.6, weight_decay=0.1, optimizer="muon",
                    beta2=0.95, ema=0.998)),
    "small": (dict(depth=12, dim=256, mixer="aft-local", context=1024, window=32, dropout=0.1),
              Recipe(steps=20000, batch=32, lr=3e-3, warmup=500, decay=0.5, weight_decay=0.1, optimizer="muon",
                     beta2=0.95, ema=0.999)),
    **papers.text(),
}

# What suits --minutes: the last preset whose least minutes and bytes are there. Less text would be learnt by heart.
FITTING = {"quick": (0, 0), "demo": (20, 1 << 20), "small": (480, 16 << 20)}
LEAST_BYTES, LEAST_CONTEXT = 1000, 32  # of a text for --minutes, of the context of a model for one that small
HELD_OUT = 1 << 20  # bytes of a file that are held out at most, unless --valid says otherwise
HELD_OUT_A_MINUTE = 1 << 15  # likewise with --minutes: measuring takes a small part of the time that learning takes


def parser(prog="aft-train text"):
    p = argparse.ArgumentParser(prog=prog, description="Train a byte-level language model.")
    p.add_argument("file", help="what to learn: any file, also .xz or .gz")
    p.add_argument("--preset", choices=PRESETS, metavar="NAME",
                   help="quick, demo, small, or a row of a paper's table, as in weights/PAPERS.md (demo; with "
                        "--minutes, what suits them and the text)")
    p.add_argument("--train", metavar="FIRST:LAST", help="bytes to train on (default: all before those held out)")
    p.add_argument("--valid", metavar="FIRST:LAST", help="bytes to hold out (default: the last tenth, at most 1 MiB)")
    p.add_argument("--valid-limit", type=int, default=1 << 17, metavar="N",
                   help="watch the run with the first N of them (131072)")
    p.add_argument("--test", metavar="FIRST:LAST", help="bytes to measure the finished model on")
    p.add_argument("--teacher", nargs="+", default=[], metavar="MODEL_DIR",
                   help="text models to learn from, half from what they say and half from the text (none)")
    group = p.add_argument_group("model", "What is not given is the preset's.")
    group.add_argument("--context", type=int, metavar="N", help="longest text in bytes")
    add_options(group, CAUSAL_MIXERS)
    add_arguments(p, PRESETS["demo"][1])
    return p


def fitting(minutes, size):
    """The preset's name, and the context it may have, for so many minutes and bytes of text."""
    name = [name for name, least in FITTING.items() if minutes >= least[0] and size >= least[1]][-1]
    context = PRESETS[name][0]["context"]
    while context > LEAST_CONTEXT and context > size // 20:  # half of what is held out
        context //= 2
    return name, context


def preset_of(args, size):
    """(shape, recipe) for a text of `size` bytes: a preset's, with what was given. Raises TrainError."""
    name, context = args.preset or "demo", None
    if args.minutes is not None and not (args.train or args.valid):
        if size < LEAST_BYTES:
            raise TrainError(f"{args.file} has {size} bytes, expected {LEAST_BYTES} or more to learn from")
        fits, context = fitting(args.minutes, size)
        name = args.preset or fits
    shape, recipe = PRESETS[name]
    shape = {**shape, "context": min(shape["context"], context or shape["context"])}
    return settle_shape(shape, args), recipe_of(args, recipe)


def train(args):
    """Train, or go on, and export. -> False if it was told to stop before its end."""
    settle(args, args.file)
    data = read_bytes(args.file)
    shape, recipe = preset_of(args, len(data))
    mixer = mixer_of(shape, 1, heads=1, kernel=16, window=32)
    config = ModelConfig("text-generation", context=shape["context"], mixer=mixer, **block_options(shape))
    T = config.context
    held = HELD_OUT if args.minutes is None else max(2 * T, min(HELD_OUT, round(HELD_OUT_A_MINUTE * args.minutes)))
    edge = len(data) - min(len(data) // 10, held)
    part = span(args.train or f"0:{edge}", len(data), "train", T + 1)
    text = torch.from_numpy(data[part])
    valid = span(args.valid or f"{edge}:", len(data), "valid", T + 1)
    test = args.test and span(args.test, len(data), "test", T + 1)
    for name, at in (("valid", valid), ("test", test)):
        if at and at.start < part.stop and part.start < at.stop:
            raise TrainError(f"--train {part.start}:{part.stop} overlaps --{name} {at.start}:{at.stop}, expected bytes "
                             "that are not learnt")
    if args.valid_limit <= T:
        raise TrainError(f"--valid-limit is {args.valid_limit}, expected more than the context, {T}")
    watched = data[valid][: args.valid_limit]
    others, said = teachers.load(args.teacher), None

    torch.manual_seed(recipe.seed)
    model = Model(config, pos_embed=shape.get("pos_embed", True), dropout=shape["dropout"])

    def batch(step):
        starts = loop.step_rng(recipe.seed, step).integers(0, len(text) - T, recipe.batch).tolist()
        x = torch.stack([text[a : a + T + 1] for a in starts]).to(run.device).long()
        if said is None:
            return x[:, :-1], x[:, 1:]
        words = torch.from_numpy(np.stack([said[a + 1 : a + T + 1] for a in starts])).to(run.device)
        return x[:, :-1], teachers.targets(x[:, 1:], words)

    def loss(forward, drawn):
        x, want = drawn  # which bytes come, or how likely each is
        return F.cross_entropy(forward(x).flatten(0, 1).float(), want.flatten(0, 1))

    options = {"task": config.task, "heads": mixer.heads, "kernel": mixer.kernel, **shape,
               "train": [part.start, part.stop], "bytes_crc32": zlib.crc32(data[part]),
               "valid": [valid.start, valid.start + len(watched)],
               **({"teachers": [teachers.crc32(model) for model in others.values()]} if others else {})}

    def prepare():
        nonlocal said
        if others:
            said = teachers.said(run.dir / "taught.f16", others, data[part], run.device, run.dtype)

    run = loop.Run(args, model, recipe, options, batch=batch, loss=loss, metric="bits_per_byte", prepare=prepare,
                   evaluate=lambda m: quality.bits_per_byte(m, watched))

    def figures(model):
        for name, at in (("held out", valid), ("test", test)):
            if at:
                on = f"{name}: bytes {at.start:,} to {at.stop:,}, windows of {T} each from scratch"
                yield on, f"{quality.bits_per_byte(model, data[at]):.4f} bits per byte"
                plain = quality.bits_of_frequencies(data[part], data[at])
                yield "baseline: byte frequencies", f"{plain:.4f} bits per byte"
        if test:
            warm, before = T // 2, min(T // 2, test.start)
            bits = quality.bits_per_byte(model, data[test.start - before : test.stop], warm, before)
            yield f"test: the same bytes, each after {warm} or more", f"{bits:.4f} bits per byte"

    taught = f" Half of what was learnt of each is what {teachers.named(others)} said of it." if others else ""
    return run.finish(
        f"{part.stop - part.start:,} bytes to learn, {recipe.batch * T:,} a step",
        [data[valid][: max(1, T // n)] for n in (1, 2, T)], figures,
        lambda seen: f"Bytes {part.start:,} to {part.stop:,} of {os.path.basename(args.file)}; {seen * T:,} bytes "
                     f"seen.{taught}",
        lambda folder: precision.write_text(folder, data[valid]))


def main(argv=None, name="aft_train.text"):
    return loop.main(name, parser, train, argv)


if __name__ == "__main__":
    sys.exit(main())
