"""What a trainer's model may be: the options of its blocks and of its mixer, and for which mixers each is.

A preset's shape is a dict by the names of these options, without dashes; what the command line gives comes first.
"""
import argparse

from .model_config import ACTIVATIONS, HEADED_MIXERS, NORMS, MixerConfig
from .recipe import TrainError

AFT = ("aft-full", "aft-local", "aft-simple", "aft-conv")
COUNT, FLAG = {"type": int, "metavar": "N"}, {"action": argparse.BooleanOptionalAction, "default": None}
BLOCK_OPTIONS = {  # option -> how it is given
    "depth": {**COUNT, "help": "blocks"},
    "dim": {**COUNT, "help": "features of a position, also of keys and values"},
    "dropout": {"type": float, "metavar": "X", "help": "share of features dropped while it learns"},
    "activation": {"choices": ACTIVATIONS, "help": "of the MLPs (gelu)"},
    "share_layers": {**FLAG, "help": "one block's weights for all"},
    "pos_embed": {**FLAG, "help": "learnt positions, added to the embeddings; a generator by aft-conv or aft-simple "
                                  "without them has no longest text"},
}
MIXER_OPTIONS = {  # option -> (mixers that have it, how it is given)
    "heads": (HEADED_MIXERS, {**COUNT, "help": "of mixers that have some"}),
    "kernel": (("aft-conv",), {**COUNT, "help": "of aft-conv: how far it looks, in patches a side or in elements"}),
    "window": (("aft-local",), {**COUNT, "help": "of aft-local: the distance within which position biases are learnt"}),
    "rank": (("aft-full", "aft-local"), {**COUNT, "help": "d' of their factorised position biases; 0: a plain matrix"}),
    "raw_kernel": (("aft-conv",), {**FLAG, "help": "aft-conv's kernel as it is, without gain and bias"}),
    "one_tap": (("aft-conv",), {**FLAG, "help": "of aft-conv: each head learns which one tap of its kernel counts"}),
    "kernel_entropy": (("aft-conv",), {"type": float, "metavar": "X",
                                       "help": "of aft-conv: so much of its kernels' entropy in the loss (0)"}),
    "query_gate": (AFT, {**FLAG, "help": "of AFT: sigmoid(q) in front"}),
    "global_sum": (AFT[1:2] + AFT[3:], {**FLAG, "help": "of aft-local, aft-conv: positions outside the window count"}),
    "share_value_query": (("fastformer",), {**FLAG, "help": "of fastformer: the query is the value"}),
    "scale": (("simple-attention",), {**FLAG, "help": "of simple-attention: its product is divided by sqrt(T)"}),
    "norm": (("sima",), {"choices": NORMS, "help": "of sima: of each channel of q and k over the tokens (l1)"}),
}


def flag(key):
    return "--" + key.replace("_", "-")


def add_options(group, mixers, **more):
    """Add --mixer and the options above to an argparse group; more: what is to be said otherwise of one."""
    group.add_argument("--mixer", choices=mixers, help="how positions look at each other (the preset's)")
    for key, how in {**BLOCK_OPTIONS, **{key: how for key, (_, how) in MIXER_OPTIONS.items()}}.items():
        group.add_argument(flag(key), **{**how, **more.get(key, {})})


def given(args, keys):
    return [key for key in keys if getattr(args, key) is not None]


def settle_shape(preset, args):
    """A preset's shape with what was given of it and of the options above. Raises TrainError for another mixer's."""
    keys = [*preset, "mixer", *BLOCK_OPTIONS, *MIXER_OPTIONS]
    shape = {**preset, **{key: getattr(args, key) for key in given(args, keys)}}
    for key in given(args, MIXER_OPTIONS):
        mixers = MIXER_OPTIONS[key][0]
        if shape["mixer"] not in mixers:
            value = getattr(args, key)
            raise TrainError(f"{flag(key)}{'' if isinstance(value, bool) else f' {value}'} is for {', '.join(mixers)}, "
                             f"not for {shape['mixer']}")
    if not 0 <= shape["dropout"] < 1:
        raise TrainError(f"--dropout is {shape['dropout']:g}, expected 0 to 1")
    return shape


def mixer_of(shape, sides, **otherwise):
    """The MixerConfig of a shape; sides: of a kernel, 1 or 2; otherwise: options of shapes that say none."""
    kind = shape["mixer"]
    said = {key: shape.get(key, otherwise.get(key)) for key, (mixers, _) in MIXER_OPTIONS.items() if kind in mixers}
    said = {key: value for key, value in said.items() if value is not None}
    said.pop("kernel_entropy", None)  # of how it learns, which loop.Run sees to
    one_tap = said.pop("one_tap", False)
    if "kernel" in said:
        said["kernel"] = (said["kernel"],) * sides
        said["reparameterised"] = not (said.pop("raw_kernel", False) or one_tap) and set(said["kernel"]) != {1}
    if said.get("rank", 0) < 0:
        raise TrainError(f"--rank is {said['rank']}, expected 0 or more")
    if "rank" in said:
        said["factorised"] = said["rank"] != 0
    return MixerConfig(kind, **said)


def block_options(shape):
    """The keyword arguments of ModelConfig that the options of blocks are."""
    return {key: shape[key] for key in ("depth", "dim", "activation", "share_layers") if shape.get(key) is not None}
