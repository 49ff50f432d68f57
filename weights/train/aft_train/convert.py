"""Make model directories of others: aft-train convert deit | state-dict | dtype | quality.

    deit      a DeiT or ViT checkpoint in timm's layout, as it is or as an AFT-conv to fine-tune
    state-dict  a checkpoint of one's own, by a file of rules
    dtype     another precision of a model directory, with what it costs
    quality   what a model directory achieves on data, or two of them side by side
"""
import argparse
import sys
from pathlib import Path

from . import deit, state_dict
from .check import read_cases
from .export import (CASES, DTYPES, INDEX, TENSORS, ModelError, assemble, check_target, export, load, read_config,
                     sample_inputs)
from .model_config import ACTIVATIONS, ConfigError, from_json
from .quality import measure, read_data
from .recipe import called


def read_labels(path):
    """A file of one label a line. Raises ModelError."""
    try:
        labels = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as e:
        raise ModelError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: is no UTF-8, expected one label a line") from None
    for number, label in enumerate(labels, 1):
        if not label.strip():
            raise ModelError(f"{path}: line {number} is empty, expected one label a line")
    return labels


def convert_deit(args):
    if args.to != "aft-conv":
        for key in ("conv_heads", "kernel"):
            if getattr(args, key) is not None:
                raise ModelError(f"--{key.replace('_', '-')} {getattr(args, key)} is for --to aft-conv, not {args.to}")
    target = check_target(args.out, args.overwrite)
    config, tensors = deit.vit(
        deit.read_checkpoint(args.checkpoint), mixer="sima" if args.to == "sima" else "attention", heads=args.heads,
        labels=args.labels and read_labels(args.labels), size=args.size and tuple(args.size), mean=args.mean,
        std=args.std, resize_to=args.resize_to, interpolation=args.interpolation, activation=args.activation,
        norm_eps=args.norm_eps)
    if args.to != "aft-conv":
        model = assemble(config, tensors)
    else:
        model = deit.to_aft_conv(config, tensors, heads=args.conv_heads, kernel=args.kernel or 11, seed=args.seed)
    export(model, target, sample_inputs(model.config, args.seed), args.dtype, overwrite=args.overwrite)
    c = model.config
    print(f"{args.out}: {c.mixer.type}, {c.depth} blocks, dim {c.dim}, {c.mixer.heads} heads, "
          f"{c.size[0]} x {c.size[1]} pixels, {len(c.labels)} classes, {model.parameter_count():,} parameters as "
          f"{args.dtype}")
    if args.to == "aft-conv":
        print("queries, keys and kernels are new: fine-tune it before it is served")


def convert_state_dict(args):
    check_target(args.out, args.overwrite)
    try:
        config = from_json(Path(args.config).read_bytes())
    except OSError as e:
        raise ModelError(f"{args.config}: {e.strerror}") from None
    except ConfigError as e:
        raise ModelError(f"{args.config}: {str(e).removeprefix('config.json: ')}") from None
    model, left = state_dict.mapped(config, deit.read_checkpoint(args.checkpoint), state_dict.read_rules(args.map))
    if left:
        print(f"{len(left)} tensors of the checkpoint are not used: {', '.join(left[:5])}{', ...' if left[5:] else ''}",
              file=sys.stderr)
    export(model, args.out, sample_inputs(config, args.seed), args.dtype, overwrite=args.overwrite)
    print(f"{args.out}: {model.parameter_count():,} parameters as {args.dtype}")


def extra_files(model_dir):
    """What lies in a model directory beside the model: {name: bytes}; a folder is named as left behind."""
    weights = {TENSORS, INDEX, CASES, "config.json"}
    files = {}
    for path in sorted(Path(model_dir).iterdir()):
        if path.name in weights or path.suffix == ".safetensors":
            continue
        if path.is_file():
            files[path.name] = path.read_bytes()
        else:
            print(f"{path} is no file and stays behind", file=sys.stderr)
    return files


def convert_dtype(args):
    for key in ("start", "length", "warm", "limit", "part"):
        if getattr(args, key) and not args.data:
            raise ModelError(f"--{key} {getattr(args, key)} is about --data, which is missing")
    check_target(args.out, args.overwrite)
    model = load(args.model)
    data = args.data and data_of(model.config, args)
    if (Path(args.model) / CASES).exists():
        inputs = [x for x, _ in read_cases(args.model)]
    else:
        inputs = sample_inputs(model.config)
    export(model, args.out, inputs, args.dtype, extra_files(args.model), args.overwrite)
    print(f"{args.out}: {model.parameter_count():,} parameters as {args.dtype}")
    if data:
        compare(args, [(args.model, model), (args.out, load(args.out))], data)


def data_of(config, args):
    """--data as read_data returns it; options that mean nothing for it are refused."""
    of_text = ("start", "length", "warm")
    nothing = {"text-generation": ("limit", "part"), "text-classification": (*of_text, "part")}
    for key in nothing.get(config.task, of_text):
        if getattr(args, key):
            raise ModelError(f"--{key} means nothing for {config.task}")
    return read_data(config, args.data, args.start, args.length, args.warm, args.part)


def convert_quality(args):
    config = read_config(args.model)
    if args.other and read_config(args.other).task != config.task:
        raise ModelError(f"{args.other} is for {read_config(args.other).task}, expected {config.task} as {args.model}")
    data = data_of(config, args)
    compare(args, [(name, load(name)) for name in (args.model, args.other) if name], data)


def compare(args, models, data):
    """Print the quality of one or two models, [(name, Model)], and how much the second one's differs."""
    figures = []
    for name, model in models:
        figures.append(measure(model, data, args.warm, args.limit))
        print(f"{figures[-1]}   {name} ({figures[-1].on})", flush=True)
    if len(figures) == 2:
        print(f"{figures[1].value - figures[0].value:+.{figures[0].digits}f}   second less first")


SEED_MAX = (1 << 32) - 1


def at_least(least, most=1 << 62):
    def integer(text):
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not within {least} to {most}")
        return value
    return integer


def parser(prog="aft-train convert"):
    p = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    verbs = p.add_subparsers(required=True, metavar="deit|state-dict|dtype|quality")

    target = argparse.ArgumentParser(add_help=False)
    target.add_argument("--overwrite", action="store_true", help="replace OUT_DIR if it is a model directory")

    d = verbs.add_parser("deit", parents=[target], help="a DeiT or ViT checkpoint in timm's layout")
    d.add_argument("checkpoint", metavar="CHECKPOINT", help=".pth or .safetensors")
    d.add_argument("out", metavar="OUT_DIR", help="the model directory to write")
    d.add_argument("--to", choices=("attention", "sima", "aft-conv"), default="attention",
                   help="the same function, sima if it was trained with that, or an AFT-conv to fine-tune (attention)")
    d.add_argument("--dtype", choices=DTYPES, default="f32", help="precision that is stored (f32)")
    d.add_argument("--heads", type=at_least(1), help="heads of the checkpoint (dim / 64)")
    d.add_argument("--labels", metavar="FILE", help="the classes' names, one a line (class 0, class 1, ...)")
    d.add_argument("--size", type=at_least(1), nargs=2, metavar=("H", "W"), help="pictures, if they are no squares")
    d.add_argument("--mean", type=float, nargs=3, default=deit.IMAGENET_MEAN, metavar="X", help="(ImageNet's)")
    d.add_argument("--std", type=float, nargs=3, default=deit.IMAGENET_STD, metavar="X", help="(ImageNet's)")
    d.add_argument("--resize-to", type=at_least(1), metavar="N", help="shorter side before the crop (size * 256 / 224)")
    d.add_argument("--interpolation", choices=("bicubic", "bilinear"), default="bicubic", help="(bicubic)")
    d.add_argument("--activation", choices=ACTIVATIONS, default="gelu", help="of the checkpoint (gelu)")
    d.add_argument("--norm-eps", type=float, default=1e-6, metavar="X", help="of the checkpoint's norms (1e-6)")
    d.add_argument("--conv-heads", type=at_least(1), metavar="H",
                   help="heads of aft-conv (32, or a divisor of dim below)")
    d.add_argument("--kernel", type=at_least(1), metavar="K", help="of aft-conv (11)")
    d.add_argument("--seed", type=at_least(0, SEED_MAX), default=0,
                   help="of what is new in aft-conv, and of the cases (0)")
    d.set_defaults(run=convert_deit)

    s = verbs.add_parser("state-dict", parents=[target], help="a checkpoint of one's own, by a file of rules",
                         description=state_dict.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    s.add_argument("checkpoint", metavar="CHECKPOINT", help=".pt, .pth or .safetensors")
    s.add_argument("out", metavar="OUT_DIR", help="the model directory to write")
    s.add_argument("--map", metavar="RULES", required=True, help="the file of rules")
    s.add_argument("--config", metavar="CONFIG", required=True,
                   help="the model's config.json, as weights/FORMAT.md has it")
    s.add_argument("--dtype", choices=DTYPES, default="f32", help="precision that is stored (f32)")
    s.add_argument("--seed", type=at_least(0, SEED_MAX), default=0, help="of the cases (0)")
    s.set_defaults(run=convert_state_dict)

    data = argparse.ArgumentParser(add_help=False)
    data.add_argument("--start", type=at_least(0), default=0, metavar="N", help="text: first byte to score (0)")
    data.add_argument("--length", type=at_least(0), default=0, metavar="N", help="text: bytes to score (0: all)")
    data.add_argument("--warm", type=at_least(0), default=0, metavar="N",
                      help="text: bytes of context that each scored byte has at least (0: windows from scratch)")
    data.add_argument("--limit", type=at_least(0), default=0, metavar="N",
                      help="pictures or texts: how many, spread over all")
    data.add_argument("--part", metavar="NAME", help="pictures: the part with the class folders, such as test")

    t = verbs.add_parser("dtype", parents=[target, data], help="another precision of a model directory")
    t.add_argument("model", metavar="MODEL_DIR")
    t.add_argument("out", metavar="OUT_DIR", help="the model directory to write")
    t.add_argument("--dtype", choices=DTYPES, required=True, help="precision that is stored")
    t.add_argument("--data", metavar="DATA", help="measure what is lost: a text, class folders of pictures or texts, "
                   "a tar or a table")
    t.set_defaults(run=convert_dtype)

    q = verbs.add_parser("quality", parents=[data], help="bits per byte, accuracy or bits per dimension on data")
    q.add_argument("model", metavar="MODEL_DIR")
    q.add_argument("other", nargs="?", metavar="OTHER_DIR", help="a second model on the same data")
    q.add_argument("--data", metavar="DATA", required=True,
                   help="a text (.xz and .gz too), class folders of pictures or texts, a tar or a table of them")
    q.set_defaults(run=convert_quality)
    return p


def main(argv=None, name="aft_train.convert"):
    args = parser(called(name)).parse_args(argv)
    try:
        args.run(args)
        return 0
    except ValueError as e:  # a model, a picture, a text that is not what it should be
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    except (OSError, MemoryError, RuntimeError) as e:  # the disk, or PyTorch that finds no memory
        print(f"{name}: {str(e).splitlines()[0] if str(e) else type(e).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
