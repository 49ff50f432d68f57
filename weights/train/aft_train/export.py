"""Model directories in and out: load() one as a Model, export() a Model as one that the daemon serves.

A directory is config.json, model.safetensors (or shards and their index), cases.safetensors with inputs and the logits
that they must give, and whatever files go with them. weights/FORMAT.md has the tensors' names and shapes.
"""
import copy
import json
import os
import re
import secrets
import shutil
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from aft_train_cli import NAME_MAX

from .mixers import BIAS_MAX, AftPosition, ReparameterisedKernel
from .model import Model
from .model_config import CONTEXT_MAX, TASKS, ConfigError, from_json, to_json

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TENSORS, INDEX, CASES = "model.safetensors", "model.safetensors.index.json", "cases.safetensors"
NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_MAX}}}")  # of a folder: it becomes the model's name
CHUNK = 1 << 24  # position biases that are checked at a time

SIDES = {  # what the sides of a shape are, for messages; the bias of a weight has its first one
    "patch_embed.weight": "dim, colours, patch height, patch width", "tok_embed": "byte values, dim",
    "pos_embed": "tokens, dim", "cls_token": "dim", "pool_score": "dim", "head.weight": "outputs, dim",
    "mixer.q.weight": "dim, dim",
    "mixer.k.weight": "keys, dim", "mixer.v.weight": "dim, dim", "mixer.out.weight": "dim, dim",
    "mixer.pos_u": "tokens, d'", "mixer.pos_v": "tokens, d'", "mixer.pos_bias": "tokens, tokens",
    "mixer.conv.weight": "heads, kernel", "mixer.conv.gain": "heads", "mixer.query_score": "heads, dim / heads",
    "mixer.key_score": "heads, dim / heads", "mlp.fc1.weight": "hidden, dim", "mlp.fc2.weight": "dim, hidden",
}


class ModelError(ValueError):
    """A model directory or a model that cannot be served; the text names the tensor or file and what was expected."""


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_config(model_dir):
    """config.json of a directory -> ModelConfig. Raises ModelError."""
    try:
        return from_json((Path(model_dir) / "config.json").read_bytes())
    except OSError as e:
        raise ModelError(f"{model_dir}/config.json: {e.strerror}") from None
    except ConfigError as e:
        raise ModelError(f"{model_dir}/{e}") from None


def read_file(path):
    """A .safetensors file -> {name: tensor}, mapped from the file. Raises ModelError."""
    try:
        with safe_open(path, "pt") as f:
            return {name: f.get_tensor(name) for name in f.keys()}
    except (OSError, SafetensorError) as e:
        raise ModelError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


def read_shards(index):
    """The files that a model.safetensors.index.json names -> {name: tensor}. Raises ModelError."""
    try:
        where = json.loads(index.read_bytes())["weight_map"]
        plain = all(isinstance(f, str) and f and "/" not in f and not f.startswith(".") for f in where.values())
    except OSError as e:
        raise ModelError(f"{index}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        plain = False
    if not plain:
        raise ModelError(f"{index}: expected an object whose weight_map is an object of plain file names by tensor")
    tensors = {}
    for file in sorted(set(where.values())):
        for name, tensor in read_file(index.parent / file).items():
            if where.get(name) != file:
                raise ModelError(f"{index}: {file} holds tensor {name}, which weight_map expects in {where.get(name)}")
            tensors[name] = tensor
    for name, file in where.items():
        if name not in tensors:
            raise ModelError(f"{index}: weight_map names tensor {name}, which {file} does not hold")
    return tensors


def load(model_dir):
    """A model directory -> Model in eval mode, float32 whatever was stored. Raises ModelError."""
    model_dir = Path(model_dir)
    config = read_config(model_dir)
    single, index = model_dir / TENSORS, model_dir / INDEX
    tensors = read_shards(index) if index.exists() and not single.exists() else read_file(single)
    try:
        return assemble(config, tensors)
    except ModelError as e:
        raise ModelError(f"{model_dir}: {e}") from None


# ---- tensors -> Model ------------------------------------------------------------------------------------------------


def assemble(config, tensors):
    """A ModelConfig and {name: F32, F16 or BF16 tensor} -> Model in eval mode, float32. Raises ModelError."""
    with torch.device("meta"):  # shapes without memory, until they are known to be those of the tensors
        model = Model(config, start_embed=config.causal and "start_embed" in tensors, pos_embed="pos_embed" in tensors,
                      cls_token="cls_token" in tensors)
        take_forms(model, tensors)
    expected = model.state_dict()
    for name, like in expected.items():
        check_tensor(name, tensors.get(name), list(like.shape))
    extra = sorted(tensors.keys() - expected.keys())
    if extra:
        more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        blocks = f"{config.depth} blocks" + (" that share those of blocks.0" if config.share_layers else "")
        raise ModelError(f"{extra[0]} is left over{more}: no such tensor is expected for {config.task} with "
                         f"{config.mixer.type}, {blocks}")
    model.load_state_dict({name: tensors[name].to(torch.float32, copy=True) for name in expected}, assign=True)
    check_biases(model)
    return model.eval()


def take_forms(model, tensors):
    """Give the modules the optional tensors that a checkpoint has and no others; any rank of the position biases."""
    for name, module in model.named_modules():
        at = name + "."
        if isinstance(module, (nn.Linear, nn.Conv2d)) and at + "bias" not in tensors:
            module.bias = None
        elif isinstance(module, ReparameterisedKernel):
            heads = module.weight.shape[:1]
            given = both_or_neither(at, "gain", "bias", tensors)
            for key in ("gain", "bias"):
                set_parameter(module, key, heads if given else None)
        elif isinstance(module, AftPosition) and module.kind != "aft-simple":
            tokens = model.config.tokens
            factorised = both_or_neither(at, "pos_u", "pos_v", tensors)
            if factorised == (at + "pos_bias" in tensors):
                raise ModelError(f"{at}pos_bias stands beside {at}pos_u, expected one form of the biases alone"
                                 if factorised else f"{at}pos_u is missing, expected pos_u and pos_v or pos_bias")
            rank = tensors[at + "pos_u"].shape[-1:].numel() if factorised else 0
            for key in ("pos_u", "pos_v"):
                set_parameter(module, key, (tokens, rank) if factorised else None)
            set_parameter(module, "pos_bias", None if factorised else (tokens, tokens))


def both_or_neither(at, first, second, tensors):
    """Whether a checkpoint has two tensors that only make sense together."""
    given = [key for key in (first, second) if at + key in tensors]
    if len(given) == 1:
        missing = second if given == [first] else first
        raise ModelError(f"{at}{missing} is missing, expected it beside {at}{given[0]}")
    return bool(given)


def set_parameter(module, name, shape):
    """Make a module's parameter one of a shape, or take it away (None): modules ask hasattr whether they have one."""
    if name in module._parameters:
        delattr(module, name)
    if shape is not None:
        setattr(module, name, nn.Parameter(torch.empty(shape)))


def check_tensor(name, tensor, shape):
    """Refuse a tensor that is missing (None), of another shape, no float, or not finite."""
    inside = re.sub(r"^blocks\.\d+\.", "", name)
    sides = SIDES.get(inside) or SIDES.get(re.sub("bias$", "weight", inside), "dim").split(", ")[0]
    if tensor is None:
        raise ModelError(f"{name} is missing, expected shape {shape} ({sides})")
    if list(tensor.shape) != shape:
        raise ModelError(f"{name} has shape {list(tensor.shape)}, expected {shape} ({sides})")
    if tensor.dtype not in DTYPES.values():
        raise ModelError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}, expected float32, float16 or bfloat16")
    if not torch.isfinite(tensor).all():
        raise ModelError(f"{name} holds NaN or infinity, expected finite numbers alone")


def check_biases(model):
    """Refuse position biases beyond +-60, and a gain on a kernel that has no spread to scale."""
    for name, module in model.named_modules():
        if isinstance(module, ReparameterisedKernel):
            check_kernel(name, module)
        elif isinstance(module, AftPosition) and module.kind != "aft-simple":
            check_positions(name, module)


def check_kernel(name, module):
    flat = module.weight.detach().flatten(1)
    if hasattr(module, "gain"):
        even = flat.amax(1) == flat.amin(1)  # a single tap too
        if even.any():
            why = "it is a single tap" if flat.shape[1] < 2 else "all its taps are equal"
            raise ModelError(f"{name}.gain scales a kernel by its spread, and head {even.nonzero()[0].item()} of "
                             f"{name}.weight has none: {why}, expected at least 2 different taps")
    with torch.no_grad():
        w = copy.deepcopy(module).double()()
    if w.abs().max() > BIAS_MAX:
        at = (w.abs() > BIAS_MAX).nonzero()[0].tolist()
        folded = f" after {name}.gain and {name}.bias" if hasattr(module, "gain") else ""
        raise ModelError(f"{name}.weight: the position bias of head {at[0]} at tap {at[1:]} is {w[tuple(at)]:.6g}"
                         f"{folded}, expected {-BIAS_MAX:g}..{BIAS_MAX:g}")


def check_positions(name, module):
    if hasattr(module, "pos_bias"):
        label, u, v = f"{name}.pos_bias", module.pos_bias.detach(), None
    else:
        label = f"{name}.pos_u times pos_v"
        u, v = module.pos_u.detach().double(), module.pos_v.detach().double()
        if u.norm(dim=1).max() * v.norm(dim=1).max() < BIAS_MAX:  # then no product can pass it either
            return
    tokens = len(u)
    step = max(1, CHUNK // tokens)
    for row in range(0, tokens, step):
        w = u[row : row + step] if v is None else u[row : row + step] @ v.T
        if w.abs().max() > BIAS_MAX:
            t, s = (w.abs() > BIAS_MAX).nonzero()[0].tolist()
            raise ModelError(f"{label}: the position bias at [{row + t}, {s}] is {w[t, s]:.6g}, "
                             f"expected {-BIAS_MAX:g}..{BIAS_MAX:g}")


# ---- inputs and logits -----------------------------------------------------------------------------------------------


def check_input(model, x):
    """Refuse what is no input of a model: uint8 [H, W, 3], a picture of the size to classify, or [T], bytes."""
    c = model.config
    if x.dtype != np.uint8:
        raise ModelError(f"is {x.dtype}, expected uint8")
    if TASKS[c.task] != "image":
        endless = c.mixer.type in ("aft-simple", "aft-conv") and not hasattr(model, "pos_embed")
        most = CONTEXT_MAX if c.causal and endless else c.context - hasattr(model, "cls_token")
        if x.ndim != 1 or not 1 <= len(x) <= most:
            raise ModelError(f"has shape {list(x.shape)}, expected [T] of 1 to {most} bytes")
        return
    if x.ndim != 3 or x.shape[2] != 3 or x.size == 0 or x.shape[0] % c.patch[0] or x.shape[1] % c.patch[1]:
        raise ModelError(f"has shape {list(x.shape)}, expected [H, W, 3] of whole patches, {list(c.patch)}")
    patches = (x.shape[0] // c.patch[0]) * (x.shape[1] // c.patch[1])
    trained = c.grid[0] * c.grid[1]
    if patches != trained and (hasattr(model, "pos_embed") or c.mixer.type in ("aft-full", "aft-local")):
        raise ModelError(f"has {patches} patches, expected {trained}: the model's positions are those")


def model_input(model, x):
    """uint8 [B, H, W, 3] or [B, T] -> what the model takes, on its device: normalised [B, 3, H, W], or the bytes."""
    like = model.head.weight
    x = torch.as_tensor(x).to(like.device)
    if TASKS[model.config.task] != "image":
        return x
    mean, std = (like.new_tensor(numbers) for numbers in (model.config.mean, model.config.std))
    return ((x.to(like.dtype) / 255 - mean) / std).permute(0, 3, 1, 2)


@torch.inference_mode()
def logits_of(model, x):
    """One input, uint8 [H, W, 3] or [T] -> float32 logits, [classes], or [T, 256] of a generator."""
    return model(model_input(model, x[None]))[0].float().cpu().numpy()


def sample_inputs(config, seed=0):
    """Random inputs of a ModelConfig's model, for cases: two pictures, or texts of 1, 2, T/2 + 1 and T bytes."""
    rng = np.random.default_rng(seed)
    if TASKS[config.task] == "image":
        shapes = [(*config.size, 3)] * 2
    else:
        most = config.context - (config.pooling == "class-token")  # which may take a position
        shapes = [(n,) for n in sorted({1, min(2, most), most // 2 + 1, most})]
    return [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


# ---- writing ---------------------------------------------------------------------------------------------------------


def rounded(model, dtype):
    """The tensors of a model in the precision that is stored. Raises ModelError for those that leave its range."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().cpu()
        tensors[name] = tensor.to(DTYPES[dtype]).contiguous()
        if not torch.isfinite(tensors[name]).all() and torch.isfinite(tensor).all():
            advice = ", or store bf16" if dtype == "f16" else ""
            raise ModelError(f"{name} holds {tensor.abs().max():.6g}, expected at most "
                             f"{torch.finfo(DTYPES[dtype]).max:.6g} as {dtype}{advice}")
    return tensors


def check_target(model_dir, overwrite):
    """The real path of a model directory that may be written. Raises ModelError."""
    target = Path(os.path.realpath(model_dir))
    if not NAME.fullmatch(target.name):
        raise ModelError(f"{model_dir}: the folder's name is {target.name!r}, expected 1 to 64 letters, digits, '.', "
                         "'_' and '-': it names the model")
    above = next(path for path in target.parents if path.exists())
    if not above.is_dir():
        raise ModelError(f"{model_dir}: {above} is no folder to write it in")
    if not os.access(above, os.W_OK):
        raise ModelError(f"{model_dir}: {above} cannot be written to")
    if target.exists():
        if not (target / "config.json").is_file():
            raise ModelError(f"{model_dir} exists and is no model directory, expected a new name")
        if not overwrite:
            raise ModelError(f"{model_dir} exists, expected a new name (or overwrite, to replace it)")
    return target


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_dir(target, files, overwrite):
    """Write {name: bytes} as the directory `target`: readers see the old one, for an instant none, the new one."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    old = aside.with_name(aside.name + ".old")
    aside.mkdir(parents=True)
    try:
        for name, data in files.items():
            (aside / name).write_bytes(data)
            sync(aside / name)
        sync(aside)
        if overwrite and target.exists():
            target.rename(old)
        aside.rename(target)
        sync(target.parent)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def export(model, model_dir, inputs, dtype="f32", files=None, overwrite=False):
    """Write a Model as a directory that the daemon serves and `aft verify` proves.

    inputs: uint8 arrays, [H, W, 3] pictures or [T] bytes, that cases.safetensors keeps with their logits, computed in
    float64 from the rounded weights; dtype: f32, f16 or bf16, of every tensor; files: {name: text or bytes} to put
    beside them; overwrite: whether an existing model directory may be replaced. Raises ModelError, OSError.
    """
    target = check_target(model_dir, overwrite)
    files = {name: data.encode() if isinstance(data, str) else data for name, data in (files or {}).items()}
    for name in files:
        if name in ("config.json", TENSORS, INDEX, CASES) or "/" in name or name in ("", ".", ".."):
            raise ModelError(f"{model_dir}: a file cannot be named {name!r} beside a model")
    if dtype not in DTYPES:
        raise ModelError(f"dtype is {dtype!r}, expected {', '.join(DTYPES)}")
    if not inputs:
        raise ModelError(f"{model_dir}: no inputs, expected one or more for cases.safetensors")
    config, tensors = to_json(model.config), rounded(model, dtype)
    served = assemble(from_json(config), tensors).double()
    cases = {}
    for k, x in enumerate(inputs):
        x = np.array(np.frombuffer(x, np.uint8) if isinstance(x, bytes) else x, order="C")
        try:
            check_input(served, x)
        except ModelError as e:
            raise ModelError(f"input.{k} {e}") from None
        cases[f"input.{k}"] = torch.from_numpy(x)
        cases[f"logits.{k}"] = torch.from_numpy(logits_of(served, x))
    files[TENSORS] = safetensors.torch.save(tensors, {"format": "pt"})
    files[CASES] = safetensors.torch.save(cases)
    files["config.json"] = config.encode()  # last: what has one is taken for a model
    write_dir(target, files, overwrite)
