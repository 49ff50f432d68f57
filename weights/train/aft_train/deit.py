"""DeiT and other plain vision transformers in timm's layout -> the served tensors.

As `attention`, or as `sima` where the checkpoint was trained with that, the served model is the same function. As
`aft-conv` it is what the AFT paper fine-tunes from a DeiT:
all is taken over but position embeddings, class token, queries and keys, and pictures are pooled by the mean.

The tensors do not tell the number of heads, the activation, the epsilon of the norms or the normalisation of pictures:
those are options, with DeiT's values as defaults.
"""
import argparse
import math
import pickle
import re
import zipfile
from pathlib import Path

import torch

from .export import ModelError, assemble, read_file
from .model import Model
from .model_config import MixerConfig, ModelConfig, replace

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# What timm's models have beyond a plain ViT and the served format has not: a pattern of the name -> what it is.
NOT_SERVED = {
    r"dist_token|head_dist\..*": "a distilled DeiT has a second token and head",
    r"reg_token|storage_tokens": "register tokens",
    r"norm_pre\..*": "a norm before the blocks",
    r"fc_norm\..*": "a norm behind the pooling",
    r"attn_pool\..*": "pooling by attention",
    r"pre_logits\..*": "a layer before the head",
    r"patch_embed\.norm\..*": "a norm of the patches",
    r"patch_embed\.proj\.\d+\..*": "patches made by several convolutions (XCiT's, and SimA's published models)",
    r"blocks\.\d+\.local_mp\..*|cls_attn_blocks\..*": "local patch interaction, class attention (likewise)",
    r"blocks\.\d+\.attn\.(q_norm|k_norm|norm)\..*": "norms inside of attention",
    r"blocks\.\d+\.attn\.(q_bias|v_bias|relative_position.*)|.*rope.*|rel_pos.*": "relative or rotary positions",
    r"blocks\.\d+\.mlp\.(w12|w1|w2|w3|fc1_g|fc1_x|gate.*)\..*": "a gated MLP (SwiGLU)",
    r"blocks\.\d+\.mlp\.norm\..*": "a norm inside of the MLP",
}
GAMMAS = (("ls1.gamma", "gamma_1"), ("ls2.gamma", "gamma_2"))  # layer scale, by timm's and by DeiT III's names


def read_checkpoint(path):
    """A .safetensors, or a .pth with or without {"model": ...} or {"state_dict": ...} around it -> {name: tensor}.

    Nothing but tensors is unpickled. Raises ModelError.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        state = read_file(path)
    else:
        try:
            with torch.serialization.safe_globals([argparse.Namespace]):  # DeiT's training scripts save theirs
                state = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as e:
            raise ModelError(f"{path}: {e.strerror or e}" if not path.exists() or path.is_dir() else
                             f"{path}: is no checkpoint that can be read to its end: {e.strerror or e}") from None
        except pickle.UnpicklingError:
            raise ModelError(f"{path}: is no checkpoint of tensors alone, expected what torch.save writes of a "
                             "state_dict, or a .safetensors") from None
        except (RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as e:
            why = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise ModelError(f"{path}: is no checkpoint: {why}") from None
    for key in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not state or not all(
            isinstance(name, str) and isinstance(t, torch.Tensor) for name, t in state.items()):
        raise ModelError(f"{path}: expected tensors by name, alone or as `model` or `state_dict`")
    for name, t in state.items():
        if t.layout != torch.strided:
            raise ModelError(f"{path}: {name} is sparse, expected a dense tensor")
    if all(name.startswith("module.") for name in state):  # of DistributedDataParallel
        state = {name.removeprefix("module."): t for name, t in state.items()}
    return state


class Checkpoint:
    """A state_dict whose tensors are taken out one by one, so that what is left is what nobody understood."""

    def __init__(self, state):
        self.state = dict(state)
        for name in state:
            for pattern, what in NOT_SERVED.items():
                if re.fullmatch(pattern, name):
                    raise ModelError(f"{name} is not served: {what}, expected a plain vision transformer")

    def take(self, name, shape, optional=False):
        """A float32 tensor of a shape, in which None is any side. None if it is not there and may be missing."""
        tensor = self.state.pop(name, None)
        sides = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
        if tensor is None:
            if optional:
                return None
            raise ModelError(f"{name} is missing, expected shape {sides}, as in timm's vision transformers")
        if tensor.dim() != len(shape) or any(want not in (None, n) for want, n in zip(shape, tensor.shape)):
            raise ModelError(f"{name} has shape {list(tensor.shape)}, expected {sides}")
        if tensor.numel() == 0:
            raise ModelError(f"{name} is empty")
        if not tensor.is_floating_point():
            raise ModelError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}, expected floating point numbers")
        return tensor.float()

    def linear(self, name, out, width):
        """{"weight": [out, width], "bias": [out] if there is one}"""
        pair = {"weight": self.take(name + ".weight", (out, width)),
                "bias": self.take(name + ".bias", (out,), optional=True)}
        return {key: tensor for key, tensor in pair.items() if tensor is not None}

    def norm(self, name, dim):
        return {key: self.take(f"{name}.{key}", (dim,)) for key in ("weight", "bias")}

    def gamma(self, at, names, dim):
        """Layer scale [dim] of a branch, by either name; None if it has none."""
        found = [g for g in (self.take(at + name, (dim,), optional=True) for name in names) if g is not None]
        return found[0] if found else None

    def finish(self):
        if self.state:
            extra = sorted(self.state)
            more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
            raise ModelError(f"{extra[0]} is left over{more}: a plain vision transformer has no such tensor")


def scaled(linear, gamma):
    """Fold the layer scale that follows a linear layer into it: gamma * (W x + b)."""
    if gamma is None:
        return linear
    return {key: tensor * (gamma[:, None] if tensor.dim() == 2 else gamma) for key, tensor in linear.items()}


def block(checkpoint, number, dim, hidden):
    """One block -> {served name without its prefix: tensor}. `hidden` units are padded with zeros to a multiple of dim.

    A padded unit is activation(0) = 0 and goes nowhere: the function is the same.
    """
    at = f"blocks.{number}."
    qkv = checkpoint.linear(at + "attn.qkv", 3 * dim, dim)
    first, second = (checkpoint.gamma(at, names, dim) for names in GAMMAS)
    fc1, fc2 = checkpoint.linear(at + "mlp.fc1", hidden, dim), checkpoint.linear(at + "mlp.fc2", dim, hidden)
    padding = -hidden % dim
    fc1 = {key: torch.cat([t, t.new_zeros(padding, *t.shape[1:])]) for key, t in fc1.items()}
    fc2["weight"] = torch.cat([fc2["weight"], fc2["weight"].new_zeros(dim, padding)], dim=1)
    layers = {
        "norm1": checkpoint.norm(at + "norm1", dim), "norm2": checkpoint.norm(at + "norm2", dim),
        "mixer.out": scaled(checkpoint.linear(at + "attn.proj", dim, dim), first),
        "mlp.fc1": fc1, "mlp.fc2": scaled(fc2, second),
    }
    for name, part in zip("qkv", range(3)):
        layers["mixer." + name] = {key: t[part * dim : (part + 1) * dim] for key, t in qkv.items()}
    return {f"{at}{layer}.{key}": t for layer, tensors in layers.items() for key, t in tensors.items()}


def grid_of(rows, class_token, patch, size):
    """(height, width) of the pictures whose patches have `rows` position embeddings: `size` if given, else a square."""
    for patches in (rows - class_token, rows):
        side = math.isqrt(max(0, patches))
        if size is None and side > 0 and side * side == patches:
            return side * patch[0], side * patch[1]
        if size is not None and size[0] // patch[0] * (size[1] // patch[1]) == patches:
            return size
    if size is None:
        raise ModelError(f"pos_embed has {rows} positions, which make no square of patches: give the picture's --size")
    raise ModelError(f"pos_embed has {rows} positions, expected those of {size[0]} x {size[1]} pixels in patches of "
                     f"{patch[0]} x {patch[1]}")


def vit(state, *, mixer="attention", heads=None, labels=None, size=None, mean=IMAGENET_MEAN, std=IMAGENET_STD,
        resize_to=None, interpolation="bicubic", activation="gelu", norm_eps=1e-6):
    """A checkpoint in timm's vision transformer layout -> (ModelConfig, {served name: tensor}), the same function.

    mixer: what it was trained with, attention or sima; heads: d/64 by default; labels: "class 0" and so on by default;
    size: (H, W) where pictures are no squares; resize_to: 256/224 of the shorter side by default, as DeiT does. Raises
    ModelError naming the tensor, ConfigError.
    """
    checkpoint = Checkpoint(state)
    kernel = checkpoint.take("patch_embed.proj.weight", (None, 3, None, None))
    dim, patch = kernel.shape[0], tuple(kernel.shape[2:])
    tensors = {"patch_embed.weight": kernel}
    bias = checkpoint.take("patch_embed.proj.bias", (dim,), optional=True)
    if bias is not None:
        tensors["patch_embed.bias"] = bias
    token = checkpoint.take("cls_token", (1, 1, dim), optional=True)
    positions = checkpoint.take("pos_embed", (1, None, dim))[0]
    size = grid_of(len(positions), token is not None, patch, size)
    patches = size[0] // patch[0] * (size[1] // patch[1])
    if token is not None:
        tensors["cls_token"] = token.flatten()
        if len(positions) == patches:  # the class token has no position
            positions = torch.cat([positions.new_zeros(1, dim), positions])
    tensors["pos_embed"] = positions
    depth = 1 + max((int(m[1]) for m in (re.match(r"blocks\.(\d+)\.", name) for name in state) if m), default=-1)
    if depth == 0:
        raise ModelError("blocks.0.norm1.weight is missing: there are no blocks")
    fc1 = state.get("blocks.0.mlp.fc1.weight")
    hidden = len(fc1) if fc1 is not None and fc1.dim() else dim
    for number in range(depth):
        tensors.update(block(checkpoint, number, dim, hidden))
    tensors.update({f"norm.{key}": t for key, t in checkpoint.norm("norm", dim).items()})
    head = checkpoint.take("head.weight", (None, dim))
    tensors["head.weight"] = head
    bias = checkpoint.take("head.bias", (len(head),), optional=True)
    if bias is not None:
        tensors["head.bias"] = bias
    checkpoint.finish()
    if heads is None:
        if dim % 64:
            raise ModelError(f"dim is {dim}, no multiple of DeiT's 64 channels a head: give --heads")
        heads = dim // 64
    if labels is not None and len(labels) != len(head):
        raise ModelError(f"{len(labels)} labels for a head of {len(head)} classes, expected one for each")
    config = ModelConfig(
        "image-classification", dim=dim, depth=depth, mixer=MixerConfig(mixer, heads=heads),
        mlp_ratio=-(-hidden // dim), activation=activation, norm_eps=norm_eps,
        pooling="mean" if token is None else "class-token",
        labels=labels or [f"class {i}" for i in range(len(head))], size=size, patch=patch, mean=tuple(mean),
        std=tuple(std), resize_to=resize_to or min(size) * 256 // 224, interpolation=interpolation)
    return config, tensors


def to_aft_conv(config, tensors, *, heads=None, kernel=11, seed=0):
    """What `vit` returns -> Model with aft-conv, to be fine-tuned: q, k and the kernels are new, positions are gone.

    heads: 32 as in the paper's ImageNet models, or the largest divisor of dim below. Raises ConfigError.
    """
    if heads is None:
        heads = next(h for h in range(32, 0, -1) if config.dim % h == 0)
    mixer = MixerConfig("aft-conv", heads=heads, kernel=(kernel, kernel))
    torch.manual_seed(seed)
    model = Model(replace(config, mixer=mixer, pooling="mean"), pos_embed=False)
    new = {name: t for name, t in model.state_dict().items() if re.search(r"\.mixer\.(q|k|conv)\.", name)}
    kept = {name: t for name, t in tensors.items()
            if name not in ("cls_token", "pos_embed") and not re.search(r"\.mixer\.[qk]\.", name)}
    return assemble(model.config, {**kept, **new})
