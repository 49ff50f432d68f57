"""Train a text classifier: aft-train classify-text TEXTS --minutes 2, or --run FOLDER.

TEXTS is a folder with a folder of texts for each label, or a .csv, .tsv or .jsonl with a text, or two to be matched,
and a label in each row.
Models are what Fastformer, Simpletron and SimA were measured as on text: any mixer, a class token or mean or additive
pooling, layers and values shared or not. Texts of a batch differ in length; what is beyond one's end is hidden.
"""
import argparse
import functools
import os
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F

from . import loop, precision, quality
from .model import Model
from .model_config import MIXERS, POOLINGS, ModelConfig
from .recipe import Recipe, TrainError, add_arguments, recipe_of, settle
from .shape import add_options, block_options, mixer_of, settle_shape
from .texts import epoch_batches, even_order, padded, read_texts, warn_of_long

QUICK = dict(depth=2, dim=96, mixer="fastformer", heads=4, kernel=15, window=32, context=1024, pooling="attention",
             dropout=0.1, crop=0, even_labels=False)
PRESETS = {  # name -> (shape, recipe)
    "quick": (QUICK, Recipe(steps=1000, batch=32, lr=3e-3, warmup=100, decay=0.7, weight_decay=0.1, beta2=0.98,
                            ema=0.99)),
    "demo": (dict(QUICK, depth=4, dim=192), Recipe(steps=5000, batch=32, lr=1e-3, warmup=500, weight_decay=0.1,
                                                   ema=0.998)),
}
VALID_SHARE, HELD_OUT_LEAST = 0.1, 10  # of the texts, where none are named for it


def parser(prog="aft-train classify-text"):
    p = argparse.ArgumentParser(prog=prog, description="Train a text classifier.")
    p.add_argument("texts", help="a folder of a folder of texts for each label, or a .csv, .tsv or .jsonl")
    p.add_argument("--columns", default="text,label", metavar="TEXT[,TEXT],LABEL",
                   help="of a table, with two texts where these are to be matched (text,label)")
    p.add_argument("--valid", metavar="TEXTS", help="texts to watch the run with (default: a tenth, left out)")
    p.add_argument("--valid-limit", type=int, default=2000, metavar="N", help="watch it with N of them (2000)")
    p.add_argument("--test", metavar="TEXTS", help="texts to measure the finished model on")
    p.add_argument("--preset", choices=PRESETS, default="quick", help="(quick)")
    p.add_argument("--init", metavar="MODEL_DIR", help="start from the weights of a model of the same shape")
    p.add_argument("--freeze", metavar="NAMES", default="", help="tensors that do not learn, such as q,k,v")
    group = p.add_argument_group("model", "What is not given is the preset's.")
    group.add_argument("--context", type=int, metavar="N", help="longest text in bytes; more is not seen")
    group.add_argument("--pooling", choices=POOLINGS, help="what the head sees of the tokens")
    group.add_argument("--crop", type=int, metavar="N",
                       help="learn from parts of texts, of N bytes or more, begun anywhere; 0: from whole ones")
    group.add_argument("--even-labels", action=argparse.BooleanOptionalAction,
                       help="each label is learnt as often as the others, however many texts it has")
    add_options(group, MIXERS)
    add_arguments(p, PRESETS["quick"][1])
    return p


def hold_out(texts, seed):
    """(Texts to learn, Texts to watch the run with). Raises TrainError."""
    order = np.random.default_rng(seed).permutation(len(texts)).tolist()
    edge = min(max(round(len(order) * VALID_SHARE), HELD_OUT_LEAST), len(order) // 2)
    if edge == 0:
        raise TrainError(f"one text with the label {texts.classes[0]}, expected more, to learn and to hold out")
    return texts.part(order[edge:]), texts.part(order[:edge])


def seen(text, context, crop, share, rng):
    """What is learnt of a text this time; share: of the way from `crop` bytes to all of it, each longer by so much."""
    if not crop or len(text) <= crop:
        return text[:context]
    size = round(crop * (min(len(text), context) / crop) ** share)
    at = int(rng.integers(0, len(text) - size + 1))
    return text[at : at + size]


def starting_model(args, config, shape):
    """A fresh Model, with what --init has of the same names and shapes. Raises TrainError, ValueError."""
    model, fits = Model(config, pos_embed=shape.get("pos_embed", True), dropout=shape["dropout"]), {}
    if args.init:
        if shape.get("one_tap"):
            raise TrainError("--one-tap learns kernels of its own, expected it without --init")
        start, own = quality.load_for(args.init, config.task), model.state_dict()
        if start.config.dim != config.dim:
            raise TrainError(f"--init {args.init} has dim {start.config.dim}, expected {config.dim} as the new model")
        keeps_head = start.relabel(config.labels)
        fits = {name: p for name, p in start.state_dict().items()
                if name in own and own[name].shape == p.shape and (keeps_head or not name.startswith("head."))}
        model.load_state_dict(own | fits)
        print(f"{len(fits)} of {len(own)} tensors are those of {args.init}", file=sys.stderr)
    for part in filter(None, args.freeze.split(",")):
        frozen = {name: p for name, p in model.named_parameters() if part in name.split(".")}
        if not frozen:
            raise TrainError(f"--freeze {part}: no tensor has that in its name")
        for name, p in frozen.items():
            if name not in fits:
                raise TrainError(f"--freeze {part}: {name} is not among what --init gives, expected it there: as it is "
                                 "it is random")
            p.requires_grad_(False)
    return model


def train(args):
    """Train, or go on, and export. -> False if it was told to stop before its end."""
    settle(args, args.texts)
    shape, recipe = PRESETS[args.preset]
    shape, recipe = settle_shape(shape, args), recipe_of(args, recipe)
    columns = args.columns.split(",")
    if not 2 <= len(columns) <= 3:
        raise TrainError(f"--columns is {args.columns}, expected two names, TEXT,LABEL, or three, TEXT,TEXT,LABEL")
    most = shape["context"] - (shape["pooling"] == "class-token")
    read = functools.partial(read_texts, columns=columns, half=(most - 1) // 2)
    source = read(args.texts)
    held = read(args.valid, classes=source.classes) if args.valid else None
    if held is None:
        source, held = hold_out(source, recipe.seed)
    test = read(args.test, classes=source.classes) if args.test else None
    if len(source.classes) < 2:
        raise TrainError(f"{args.texts} has the label {source.classes[0]} alone, expected two or more to tell apart")
    if len(source) < recipe.batch:
        raise TrainError(f"{args.texts} has {len(source)} texts to learn, fewer than a batch: expected --batch "
                         f"{len(source)} or less, not {recipe.batch}")
    if args.valid_limit < 1:
        raise TrainError(f"--valid-limit is {args.valid_limit}, expected 1 or more")
    config = ModelConfig("text-classification", labels=source.classes, context=shape["context"],
                         pooling=shape["pooling"], mixer=mixer_of(shape, 1, heads=4, kernel=15, window=32),
                         **block_options(shape))
    if most < 1:
        raise TrainError(f"--context is {config.context}, expected 2 or more: a class token takes one")
    if not 0 <= shape["crop"] <= most:
        raise TrainError(f"--crop is {shape['crop']}, expected 0 to {most}, as many bytes as are seen")
    warn_of_long(source, most, "aft-train classify-text")
    torch.manual_seed(recipe.seed)
    model = starting_model(args, config, shape)
    watched = held.part(quality.spread(len(held), args.valid_limit))

    @functools.lru_cache(maxsize=2)
    def epoch(number):
        rng = np.random.default_rng([recipe.seed, number, 1])
        return epoch_batches([len(text) for text in source.texts], recipe.batch, rng,
                             even_order(source.labels, rng) if shape["even_labels"] else None)

    def batch(step):
        number, at = divmod(step, len(source) // recipe.batch)
        chosen, rng = epoch(number)[at], loop.step_rng(recipe.seed, step)
        share = rng.random()  # one for all, which then are of about one length, short ones as often as long ones
        x, lengths = padded([seen(source.texts[i], most, shape["crop"], share, rng) for i in chosen])
        return tuple(t.to(run.device) for t in (x, lengths, torch.tensor([source.labels[i] for i in chosen])))

    def loss(forward, made):
        x, lengths, want = made
        return F.cross_entropy(forward(x, lengths).float(), want)

    options = {"task": config.task, **shape, "labels": source.classes, "texts": len(source),
               "init": args.init and os.path.abspath(args.init), "freeze": args.freeze,
               "texts_crc32": functools.reduce(lambda crc, text: zlib.crc32(text, crc), source.texts,
                                               zlib.crc32(np.array(source.labels)))}
    run = loop.Run(args, model, recipe, options, batch=batch, loss=loss, metric="accuracy",
                   evaluate=lambda m: quality.text_accuracy(m, watched),
                   logits=lambda m: quality.text_logits(m, held))
    def figures(model, made):
        yield from quality.classifier_figures(f"held out: {len(held):,} texts", *made)
        if test:
            yield from quality.classifier_figures(f"test: {len(test):,} texts", *quality.text_logits(model, test))
        yield "baseline: majority class", f"{quality.accuracy_of_commonest(source, test or held):.2f} % right"

    return run.finish(
        f"{len(source):,} texts of {len(source.classes)} labels, {recipe.batch} a step",
        [held.texts[i][:most] for i in range(min(3, len(held)))], figures,
        lambda seen: f"{len(source):,} texts of {os.path.basename(os.path.abspath(args.texts))} with "
                     f"{len(source.classes)} labels; {seen:,} seen.",
        lambda folder: precision.write_texts(folder, held))


def main(argv=None, name="aft_train.classify_text"):
    return loop.main(name, parser, train, argv)


if __name__ == "__main__":
    sys.exit(main())
