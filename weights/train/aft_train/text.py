"""Train a byte-level language model on any file: python -m aft_train.text FILE --run FOLDER.

The recipe of the AFT paper's section 5.2 (AdamW, warm-up, weight decay 0.5, dropout) in the presets `paper` and
`paper-wide`; `demo` and `small` use Muon, which learns the same in about half the steps on a processor.
"""
import argparse
import os
import sys
import zlib

import torch
import torch.nn.functional as F

from . import loop, quality
from .corpus import read_bytes, span
from .loop import Recipe, TrainError
from .model import Model
from .model_config import MIXERS, NOT_CAUSAL_MIXERS, MixerConfig, ModelConfig

PRESETS = {  # name -> (shape, recipe)
    "demo": (dict(depth=6, dim=192, context=512, window=32, dropout=0.0),
             Recipe(steps=2500, batch=16, lr=8e-3, warmup=200, decay=0.6, weight_decay=0.1, optimizer="muon",
                    beta2=0.95, ema=0.998)),
    "small": (dict(depth=12, dim=256, context=1024, window=32, dropout=0.1),
              Recipe(steps=20000, batch=32, lr=3e-3, warmup=500, decay=0.5, weight_decay=0.1, optimizer="muon",
                     beta2=0.95, ema=0.999)),
    "paper": (dict(depth=24, dim=256, context=1024, window=32, dropout=0.1),
              Recipe(steps=200000, batch=128, lr=5e-4, warmup=4000, decay=1.0, weight_decay=0.5)),
    "paper-wide": (dict(depth=12, dim=512, context=1024, window=32, dropout=0.2),
                   Recipe(steps=200000, batch=128, lr=5e-4, warmup=4000, decay=1.0, weight_decay=0.5)),
}

HELD_OUT = 1 << 20  # bytes of a file that are held out at most, unless --valid says otherwise


def parser():
    p = argparse.ArgumentParser(prog="python -m aft_train.text", description="Train a byte-level language model.")
    p.add_argument("file", help="what to learn: any file, also .xz or .gz")
    p.add_argument("--run", required=True, metavar="FOLDER", help="the run's folder; one that was interrupted goes on")
    p.add_argument("--preset", choices=PRESETS, default="demo")
    p.add_argument("--train", metavar="FIRST:LAST", help="bytes to train on (default: all before those held out)")
    p.add_argument("--valid", metavar="FIRST:LAST", help="bytes to hold out (default: the last tenth, at most 1 MiB)")
    p.add_argument("--valid-limit", type=int, default=1 << 17, metavar="N",
                   help="watch the run with the first N of them (131072)")
    p.add_argument("--test", metavar="FIRST:LAST", help="bytes to measure the finished model on")
    group = p.add_argument_group("model")
    group.add_argument("--mixer", choices=[m for m in MIXERS if m not in NOT_CAUSAL_MIXERS], default="aft-local")
    for key in ("depth", "dim", "context", "window", "heads", "kernel"):
        group.add_argument("--" + key, type=int)
    group.add_argument("--dropout", type=float)
    loop.add_arguments(p, PRESETS["demo"][1])
    return p


def train(args):
    """Train, or go on, and export. -> False if it was told to stop before its end."""
    shape, recipe = PRESETS[args.preset]
    shape = {**shape, **{k: v for k, v in vars(args).items() if k in shape and v is not None}}
    recipe = loop.recipe_of(args, recipe)
    loop.check_mixer_options(args, args.mixer)
    kernel = 16 if args.kernel is None else args.kernel
    mixer = MixerConfig(args.mixer, heads=1 if args.heads is None else args.heads, window=shape["window"],
                        kernel=(kernel,), reparameterised=kernel != 1)
    config = ModelConfig("text-generation", dim=shape["dim"], depth=shape["depth"], context=shape["context"],
                         mixer=mixer)
    data, T = read_bytes(args.file), config.context
    edge = len(data) - min(len(data) // 10, HELD_OUT)
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

    torch.manual_seed(recipe.seed)
    model = Model(config, dropout=shape["dropout"])

    def batch(step):
        starts = loop.step_rng(recipe.seed, step).integers(0, len(text) - T, recipe.batch)
        x = torch.stack([text[a : a + T + 1] for a in starts.tolist()])
        return x.to(run.device).long()

    def loss(forward, x):
        return F.cross_entropy(forward(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())

    options = {"task": config.task, "mixer": args.mixer, "heads": mixer.heads, "kernel": mixer.kernel, **shape,
               "train": [part.start, part.stop], "bytes_crc32": zlib.crc32(data[part]),
               "valid": [valid.start, valid.start + len(watched)]}
    run = loop.Run(args, model, recipe, options, batch=batch, loss=loss, metric="bits_per_byte",
                   evaluate=lambda m: quality.bits_per_byte(m, watched))
    print(f"{model.parameter_count():,} parameters; {part.stop - part.start:,} bytes to learn, {recipe.batch * T:,} "
          f"a step; {run.device}, {'bf16' if run.dtype else 'float32'}", file=sys.stderr)
    if not run.train():
        return False

    def figures(model):
        for name, at in (("held out", valid), ("test", test)):
            if at:
                on = f"{name}: bytes {at.start:,} to {at.stop:,}, windows of {T} each from scratch"
                yield on, f"{quality.bits_per_byte(model, data[at]):.4f} bits per byte"
        if test:
            warm, before = T // 2, min(T // 2, test.start)
            bits = quality.bits_per_byte(model, data[test.start - before : test.stop], warm, before)
            yield f"test: the same bytes, each after {warm} or more", f"{bits:.4f} bits per byte"

    inputs = [data[valid][: max(1, T // n)] for n in (1, 2, T)]
    name = os.path.basename(args.file)
    run.export(inputs, figures, f"Bytes {part.start:,} to {part.stop:,} of {name}; {recipe.steps * recipe.batch * T:,} "
               "bytes seen.")
    return True


def main(argv=None):
    return loop.main("aft_train.text", parser(), train, argv)


if __name__ == "__main__":
    sys.exit(main())
