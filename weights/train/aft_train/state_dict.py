"""A state_dict of one's own -> the served tensors, by a file of rules: aft-train convert state-dict.

The rules are a JSON object: a served name (weights/FORMAT.md) -> where it comes from, in the checkpoint. {i} in both
stands for each block's number. Where it comes from is a name, or an object:

    {"from": name, "transpose": true, "part": [k, n]}

transpose: rows and columns are exchanged first; part: of n equal parts along the first side the k-th, counted from 0,
as of queries, keys and values in one matrix.
"""
import difflib
import json
from pathlib import Path

import torch

from .export import ModelError, assemble, take_forms
from .model import Model

KEYS = {"from", "transpose", "part"}


def read_rules(path):
    """{served name: rule} with every rule an object. Raises ModelError."""
    try:
        rules = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise ModelError(f"{path}: {e.strerror}") from None
    except ValueError as e:
        raise ModelError(f"{path}: is no JSON: {e}") from None
    rules = {name: {"from": r} if isinstance(r, str) else r for name, r in rules.items()} if isinstance(
        rules, dict) else {"the rules": None}
    for name, rule in rules.items():
        part = rule.get("part", [0, 1]) if isinstance(rule, dict) else None
        fits = isinstance(part, list) and len(part) == 2 and all(isinstance(n, int) for n in part) and \
            0 <= part[0] < part[1]
        if not fits or not isinstance(rule.get("from"), str) or rule.keys() - KEYS:
            raise ModelError(f'{path}: {name} has no rule, expected the name of a tensor, or {{"from": name, '
                             '"transpose": true, "part": [k, n]}, the last two if need be')
    return rules


def for_each_block(rules, depth):
    """The rules with {i} filled in: (served name, rule)."""
    for name, rule in rules.items():
        for i in range(depth) if "{i}" in name else [0]:
            yield name.replace("{i}", str(i)), {**rule, "from": rule["from"].replace("{i}", str(i))}


def taken(state, name, rule):
    """The tensor that a rule tells of. Raises ModelError."""
    source = state.get(rule["from"])
    if source is None:
        near = difflib.get_close_matches(rule["from"], state, n=3)
        raise ModelError(f"{name}: the checkpoint has no {rule['from']}{'; near: ' * bool(near)}{', '.join(near)}")
    if rule.get("transpose"):
        source = source.mT if source.dim() >= 2 else source
    k, n = rule.get("part", [0, 1])
    if source.dim() == 0 or len(source) % n:
        raise ModelError(f"{name}: {rule['from']} has shape {list(source.shape)}, expected one of {n} equal parts")
    rows = len(source) // n
    return source[k * rows : (k + 1) * rows].float().contiguous()


def mapped(config, state, rules):
    """A ModelConfig, a checkpoint {name: tensor} and read_rules' -> (Model, names that are not used). Raises ModelError
    with a line for each tensor that is missing or does not fit, and what of the checkpoint has its shape."""
    tensors, faults, used = {}, [], set()
    for name, rule in for_each_block(rules, 1 if config.share_layers else config.depth):
        try:
            tensors[name] = taken(state, name, rule)
            used.add(rule["from"])
        except ModelError as e:
            faults.append(str(e))
    if not faults:
        with torch.device("meta"):
            model = Model(config, start_embed=config.causal and "start_embed" in tensors,
                          pos_embed="pos_embed" in tensors, cls_token="cls_token" in tensors)
            take_forms(model, tensors)
        for name, like in model.state_dict().items():
            got = tensors.get(name)
            if got is not None and got.squeeze().shape == like.shape:  # ViTs have pos_embed and cls_token as a batch
                got = tensors[name] = got.squeeze()
            if got is None or got.shape != like.shape:
                is_so = "has no rule" if got is None else f"comes with shape {list(got.shape)}"
                faults.append(f"{name} {is_so}, expected shape {list(like.shape)}"
                              f"{suggestion(like.shape, state, used)}")
    if faults:
        raise ModelError("\n".join(["the rules do not make the model:", *("  " + fault for fault in faults)]))
    return assemble(config, tensors), sorted(state.keys() - used)


def suggestion(shape, state, used):
    """What of a checkpoint has a shape, or has it transposed, and is not used yet."""
    same = [name for name, t in state.items() if name not in used and t.shape == shape]
    turned = [name for name, t in state.items() if name not in used and len(shape) == 2 and t.dim() == 2
              and t.shape == shape[::-1] and t.shape != shape]
    if same:
        return "; of that shape: " + ", ".join(same[:3])
    return "; of that shape transposed: " + ", ".join(turned[:3]) if turned else ""
