#!/usr/bin/env python3
"""Write tests/data/odd-shapes: small random models whose sizes fit nothing, with the reference implementation's logits.

    python3 tests/data/make_odd_shapes.py          from the project's root; needs numpy

The models of tests/data/golden are all 32 channels wide with every default of the format. These have widths that are no
multiple of a register, one of each activation, shared layers, absent biases, oblong patches and grids, position
embeddings for pictures, every dtype, contexts about as long as the window, an even kernel, kernels that are 0 nearly
everywhere, and biases up to the largest allowed beside large keys.
"""
import json
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, "tests/oracle")
import oracle

OUT = pathlib.Path("tests/data/odd-shapes")


def picture(name, size, patch, labels, heads, kernel, **more):
    mixer = dict(type="aft-conv", heads=heads, kernel=kernel)
    return dict(name=name, size=size, patch=patch, labels=labels, mixer=mixer, **more)


def text(name, context, window, **more):
    return dict(name=name, context=context, mixer=dict(type="aft-local", window=window), **more)


def classes(name, context, labels, mixer, **more):
    return dict(name=name, context=context, labels=labels, mixer=mixer, **more)


MODELS = [
    picture("conv-dim20-heads5", [6, 20], [2, 5], 17, 5, [3, 5], dim=20, depth=2, mlp_ratio=3, activation="relu"),
    picture("conv-dim33-heads11", [9, 12], [3, 2], 1, 11, [5, 3], dim=33, depth=2, mlp_ratio=1,
            activation="gelu_tanh", norm_eps=1e-3),
    picture("conv-dim17-heads17-window", [7, 7], [1, 1], 16, 17, [3, 3], dim=17, depth=1, mlp_ratio=2,
            window_only=True),
    picture("conv-dim24-positions", [8, 12], [4, 4], 3, 3, [1, 7], dim=24, depth=3, mlp_ratio=2,
            share_layers=True, positions=True, gain=True),
    text("local-dim20", 17, 5, dim=20, depth=2, mlp_ratio=3, activation="relu", positions=True),
    text("local-dim33", 33, 32, dim=33, depth=2, mlp_ratio=1, activation="gelu_tanh", factors=3),
    text("local-dim7-window", 19, 19, dim=7, depth=2, mlp_ratio=5, window_only=True, query_gate=False,
         norm_eps=0.1),
    text("local-dim40-shared", 16, 3, dim=40, depth=3, mlp_ratio=2, share_layers=True, positions=True, factors=2),
    picture("conv-dim16-even-kernel", [8, 12], [2, 2], 5, 4, [4, 2], dim=16, depth=2, mlp_ratio=2),
    picture("conv-dim24-extreme", [12, 10], [2, 2], 4, 6, [3, 5], dim=24, depth=2, mlp_ratio=2, extreme=True),
    text("local-dim24-extreme", 40, 6, dim=24, depth=2, mlp_ratio=2, extreme=True),
    dict(name="full-dim24-extreme", context=30, mixer=dict(type="aft-full"), dim=24, depth=2, mlp_ratio=2,
         extreme=True),
    dict(name="causal-conv-dim24-extreme", context=30, mixer=dict(type="aft-conv", heads=4, kernel=[7]), dim=24,
         depth=2, mlp_ratio=2, extreme=True),
    classes("text-full-dim20", 23, 5, dict(type="aft-full"), dim=20, depth=2, mlp_ratio=2, positions=True),
    classes("text-local-dim33-extreme", 19, 3, dict(type="aft-local", window=4), dim=33, depth=1, mlp_ratio=2,
            extreme=True),
    classes("text-conv-dim24", 21, 4, dict(type="aft-conv", heads=6, kernel=[4]), dim=24, depth=2, mlp_ratio=2,
            gain=True),
    classes("text-simple-dim20", 17, 2, dict(type="aft-simple"), dim=20, depth=2, mlp_ratio=2),
    classes("text-attention-dim20", 17, 2, dict(type="attention", heads=4), dim=20, depth=2, mlp_ratio=2),
    classes("text-sima-dim33", 17, 2, dict(type="sima", heads=3), dim=33, depth=2, mlp_ratio=2),
    dict(name="causal-conv-endless", context=3, endless=40, mixer=dict(type="aft-conv", heads=4, kernel=[5]), dim=20,
         depth=2, mlp_ratio=2),
    dict(name="causal-simple-endless", context=3, endless=40, mixer=dict(type="aft-simple"), dim=20, depth=2,
         mlp_ratio=2),
    picture("conv-dim24-sparse", [14, 16], [2, 2], 4, 6, [7, 9], dim=24, depth=3, mlp_ratio=1, active=[1, 2, 0]),
    dict(name="causal-conv-dim8-sparse", context=12, mixer=dict(type="aft-conv", heads=4, kernel=[7]), dim=8, depth=3,
         mlp_ratio=1, lags=[3, 5, 0]),
    dict(name="causal-conv-dim72-heads9", context=16, mixer=dict(type="aft-conv", heads=9, kernel=[5]), dim=72, depth=1,
         mlp_ratio=1),
]
DTYPES = ["F32", "F16", "BF16"]


def stored(t, dtype):
    """The bytes of an array in a dtype."""
    t = np.asarray(t, "<f4")
    if dtype == "F16":
        return t.astype("<f2").tobytes()
    if dtype == "BF16":
        return (t.view("<u4") >> 16).astype("<u2").tobytes()
    return t.tobytes()


def write(path, tensors):
    """As oracle.write_safetensors, but F32, F16 and BF16 in turn."""
    header, blobs, at = {}, [], 0
    for i, (name, t) in enumerate(tensors.items()):
        dtype = DTYPES[i % 3]
        blob = stored(t, dtype)
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def config(m):
    c = {"format": "aftd-model", "version": 1, "mixer": dict(m["mixer"])}
    for key in ("dim", "depth", "mlp_ratio", "activation", "norm_eps", "share_layers"):
        if key in m:
            c[key] = m[key]
    if m.get("window_only"):
        c["mixer"]["global"] = False
    if "query_gate" in m:
        c["mixer"]["query_gate"] = m["query_gate"]
    if "size" in m:
        c["task"] = "image-classification"
        c["labels"] = [f"class {i}" for i in range(m["labels"])]
        c["input"] = {"kind": "image", "size": m["size"], "patch": m["patch"]}
        c["input"].update(mean=[0.5, 0.4, 0.3], std=[0.2, 0.25, 0.3])
    else:
        c["task"] = "text-classification" if "labels" in m else "text-generation"
        if "labels" in m:
            c["labels"] = [f"class {i}" for i in range(m["labels"])]
        if m["mixer"]["type"] == "aft-conv":
            c["mixer"]["kernel"] = m["mixer"]["kernel"][0]
        c["input"] = {"kind": "bytes", "context": m["context"]}
    return c


def weights(m, random):
    p, d = {}, m["dim"]
    normal = lambda *shape, scale=1.0: random.standard_normal(shape) * scale

    def biases(*shape):
        return random.uniform(-59, 59, shape) if m.get("extreme") else normal(*shape, scale=2.0)

    def linear(name, rows, columns, bias):
        p[name + ".weight"] = normal(rows, columns, scale=columns**-0.5)
        if bias:
            p[name + ".bias"] = normal(rows, scale=0.3)

    def norm(name):
        p[name + ".weight"] = 1 + normal(d, scale=0.2)
        p[name + ".bias"] = normal(d, scale=0.2)

    if "size" in m:
        ph, pw = m["patch"]
        p["patch_embed.weight"] = normal(d, 3, ph, pw, scale=(3 * ph * pw) ** -0.5)
        p["patch_embed.bias"] = normal(d, scale=0.3)
        positions = m["size"][0] // ph * (m["size"][1] // pw)
    else:
        p["tok_embed"] = normal(256, d)
        positions = m["context"]
    if m.get("positions"):
        p["pos_embed"] = normal(positions, d, scale=0.5)
    for i in range(1 if m.get("share_layers") else m["depth"]):
        n = f"blocks.{i}"
        norm(n + ".norm1")
        norm(n + ".norm2")
        kind = m["mixer"]["type"]
        heads = m["mixer"]["heads"] if kind == "aft-conv" else d
        for part, rows, bias in (("q", d, i == 0), ("k", heads, i == 1), ("v", d, i == 0), ("out", d, i == 1)):
            linear(f"{n}.mixer.{part}", rows, d, bias)
        if m.get("extreme"):
            p[n + ".mixer.k.weight"] *= 20
        linear(n + ".mlp.fc1", m["mlp_ratio"] * d, d, i == 1)
        linear(n + ".mlp.fc2", d, m["mlp_ratio"] * d, i == 0)
        if kind == "aft-conv":
            p[n + ".mixer.conv.weight"] = biases(heads, *m["mixer"]["kernel"])
            taps = p[n + ".mixer.conv.weight"].reshape(heads, -1)
            for h in range(heads if "active" in m else 0):  # so many taps of a head that are not 0, anywhere
                taps[h, random.permutation(taps.shape[1])[m["active"][i]:]] = 0
            if "lags" in m:  # so many taps up to the query's own position
                taps[:, :taps.shape[1] - m["lags"][i]] = 0
            if m.get("gain"):
                p[n + ".mixer.conv.gain"] = normal(heads, scale=2.0)
                p[n + ".mixer.conv.bias"] = normal(heads)
        elif "factors" in m:
            p[n + ".mixer.pos_u"] = normal(positions, m["factors"])
            p[n + ".mixer.pos_v"] = normal(positions, m["factors"])
        elif kind in ("aft-full", "aft-local"):
            p[n + ".mixer.pos_bias"] = biases(positions, positions)
    norm("norm")
    linear("head", m.get("labels", 256), d, "size" in m)
    return p


for number, m in enumerate(MODELS):
    random = np.random.default_rng(number)
    folder = OUT / m["name"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(m), indent=1) + "\n")
    write(folder / "model.safetensors", weights(m, random))
    model, cases = oracle.Model(str(folder)), {}
    if "size" in m:
        ph, pw = m["patch"]
        sizes = [m["size"]] + ([] if m.get("positions") else [[ph, pw], [5 * ph, 3 * pw]])
        inputs = [random.integers(0, 256, (*size, 3)).astype(np.uint8) for size in sizes]
    else:
        lengths = (1, m["context"] // 2, m.get("endless", m["context"]))
        inputs = [random.integers(0, 256, n).astype(np.uint8) for n in lengths]
    for k, x in enumerate(inputs):
        cases[f"input.{k}"] = x
        judge = model.image_logits if "size" in m else model.text_logits if "labels" in m else model.lm_logits
        logits = judge(x)
        cases[f"logits.{k}"] = np.asarray(logits).astype(np.float32)
    oracle.write_safetensors(str(folder / "cases.safetensors"), cases)
    print(m["name"])
