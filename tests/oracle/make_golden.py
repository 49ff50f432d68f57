"""Write golden cases: a small random model of every kind, inputs, and the oracle's logits.

    python3 make_golden.py OUT_DIR SEED

A case is a folder: config.json + model.safetensors (a model directory), and cases.safetensors holding
input.K (uint8: an (H,W,3) image or (T,) bytes) and logits.K (float32) for K = 0, 1, ...
"""
import json
import os
import sys

import numpy as np

from oracle import Model, write_safetensors


def rand(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def add_linear(p, rng, name, out, inp, gain=1.0):
    p[name + ".weight"] = rand(rng, out, inp, scale=gain / np.sqrt(inp))
    p[name + ".bias"] = rand(rng, out, scale=0.1 * gain)


def add_norm(p, rng, name, d):
    p[name + ".weight"] = 1 + rand(rng, d, scale=0.2)
    p[name + ".bias"] = rand(rng, d, scale=0.2)


def add_block(p, rng, n, cfg, T, key_gain, bias_shift, one_tap):
    d, mx = cfg["dim"], cfg["mixer"]
    kind = mx["type"]
    add_norm(p, rng, n + ".norm1", d)
    add_norm(p, rng, n + ".norm2", d)
    add_linear(p, rng, n + ".mixer.q", d, d)
    add_linear(p, rng, n + ".mixer.k", mx["heads"] if kind == "aft-conv" else d, d, key_gain)
    if not mx.get("share_value_query"):
        add_linear(p, rng, n + ".mixer.v", d, d)
    if kind != "simple-attention":
        add_linear(p, rng, n + ".mixer.out", d, d)
    if kind == "aft-full" or mx.get("window", 0) > 0:
        if mx.get("factorised", True):
            p[n + ".mixer.pos_u"] = rand(rng, T, 8, scale=0.7)
            p[n + ".mixer.pos_v"] = rand(rng, T, 8, scale=0.7)
        else:
            p[n + ".mixer.pos_bias"] = rand(rng, T, T) + np.float32(bias_shift)
    if kind == "aft-conv":
        k = mx["kernel"]
        sides = k if isinstance(k, list) else [k]
        p[n + ".mixer.conv.weight"] = rand(rng, mx["heads"], *sides) + np.float32(bias_shift)
        if one_tap:  # of each head, the largest
            w = p[n + ".mixer.conv.weight"]
            w[w < w.max(axis=(1, 2), keepdims=True)] = 0
        if mx.get("reparameterised", True):
            p[n + ".mixer.conv.gain"] = rand(rng, mx["heads"], scale=0.7)
            p[n + ".mixer.conv.bias"] = rand(rng, mx["heads"], scale=0.7)
    if kind == "fastformer":
        for s in ("query_score", "key_score"):
            p[n + f".mixer.{s}"] = rand(rng, mx["heads"], d // mx["heads"])
    add_linear(p, rng, n + ".mlp.fc1", d * cfg.get("mlp_ratio", 4), d)
    add_linear(p, rng, n + ".mlp.fc2", d, d * cfg.get("mlp_ratio", 4))


def build(rng, cfg, key_gain=1.0, bias_shift=0.0, one_tap=False):
    d, i, p = cfg["dim"], cfg["input"], {}
    if i["kind"] == "image":
        H, W = (s // i["patch"][j] for j, s in enumerate(i["size"]))
        T = H * W
        p["patch_embed.weight"] = rand(rng, d, 3, *i["patch"], scale=1 / np.sqrt(3 * i["patch"][0] * i["patch"][1]))
        p["patch_embed.bias"] = rand(rng, d, scale=0.1)
        if cfg.get("pooling") == "class-token":
            T += 1
            p["cls_token"] = rand(rng, d)
        if cfg["mixer"]["type"] != "aft-conv":
            p["pos_embed"] = rand(rng, T, d, scale=0.3)
        out = len(cfg["labels"])
    else:
        T = i["context"]
        p["tok_embed"] = rand(rng, 256, d)
        p["pos_embed"] = rand(rng, T, d, scale=0.3)
        if cfg["task"] == "image-generation":
            p["start_embed"] = rand(rng, d)
        if cfg.get("pooling") == "class-token":
            p["cls_token"] = rand(rng, d)
        out = len(cfg["labels"]) if cfg["task"] == "text-classification" else 256
    if cfg.get("pooling") == "attention":
        p["pool_score"] = rand(rng, d, scale=3.0)
    for b in range(1 if cfg.get("share_layers") else cfg["depth"]):
        add_block(p, rng, f"blocks.{b}", cfg, T, key_gain, bias_shift, one_tap)
    add_norm(p, rng, "norm", d)
    add_linear(p, rng, "head", out, d, 2.0)
    return p


def image_cfg(mixer, size=(32, 32), patch=(4, 4), dim=32, depth=2, classes=7, **more):
    return {
        "format": "aftd-model", "version": 1, "task": "image-classification", "dim": dim, "depth": depth,
        "mixer": mixer, "labels": [f"class {j}" for j in range(classes)],
        "input": {"kind": "image", "size": list(size), "patch": list(patch),
                  "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        **more,
    }


def text_cfg(mixer, task="text-generation", context=48, dim=32, depth=2, **more):
    cfg = {
        "format": "aftd-model", "version": 1, "task": task, "dim": dim, "depth": depth, "mixer": mixer,
        "input": {"kind": "pixels" if task == "image-generation" else "bytes", "context": context}, **more,
    }
    if task == "text-classification":
        cfg["labels"] = ["negative", "neutral", "positive"]
    if task == "image-generation":
        cfg["input"].update(size=[4, 4])
    return cfg


CASES = {
    "conv-heads8-k5": (image_cfg({"type": "aft-conv", "heads": 8, "kernel": [5, 5]}), {}),
    "conv-heads32-k11": (image_cfg({"type": "aft-conv", "heads": 32, "kernel": [11, 11]}), {}),
    "conv-heads1-k3-raw": (image_cfg({"type": "aft-conv", "heads": 1, "kernel": [3, 3], "reparameterised": False}), {}),
    "conv-k15-wider-than-grid": (image_cfg({"type": "aft-conv", "heads": 16, "kernel": [15, 15]}), {}),
    "conv-k3x7-oblong": (image_cfg({"type": "aft-conv", "heads": 4, "kernel": [3, 7]}, size=(24, 40), patch=(4, 8)),
                         {}),
    "conv-local-only": (image_cfg({"type": "aft-conv", "heads": 4, "kernel": [3, 3], "global": False}), {}),
    "conv-no-query": (image_cfg({"type": "aft-conv", "heads": 4, "kernel": [5, 5], "query_gate": False}), {}),
    "conv-large-keys": (image_cfg({"type": "aft-conv", "heads": 8, "kernel": [5, 5]}), {"key_gain": 40.0}),
    # one key outweighs all others and its bias is very negative: total - window + exp(w) window would cancel
    "conv-cancelling": (image_cfg({"type": "aft-conv", "heads": 8, "kernel": [5, 5], "reparameterised": False}),
                        {"key_gain": 10.0, "bias_shift": -14.0}),
    "conv-local-only-large-keys": (image_cfg({"type": "aft-conv", "heads": 4, "kernel": [3, 3], "global": False}),
                                   {"key_gain": 40.0}),
    "image-aft-full-class-token": (image_cfg({"type": "aft-full"}, pooling="class-token"), {}),
    "image-aft-full-plain": (image_cfg({"type": "aft-full", "factorised": False}), {}),
    "image-aft-simple": (image_cfg({"type": "aft-simple"}), {}),
    "image-aft-local": (image_cfg({"type": "aft-local", "window": 5}), {}),
    "image-sima": (image_cfg({"type": "sima", "heads": 4}), {}),
    "image-sima-wide": (image_cfg({"type": "sima", "heads": 1}, size=(16, 16), dim=48), {}),
    "image-sima-relu": (image_cfg({"type": "sima", "heads": 4}, activation="relu"), {}),
    "image-attention": (image_cfg({"type": "attention", "heads": 4}, pooling="class-token"), {}),
    "lm-local-8": (text_cfg({"type": "aft-local", "window": 8}), {}),
    "lm-local-1": (text_cfg({"type": "aft-local", "window": 1}), {}),
    "lm-local-past-context": (text_cfg({"type": "aft-local", "window": 100}), {}),
    "lm-local-plain-bias": (text_cfg({"type": "aft-local", "window": 8, "factorised": False}), {}),
    "lm-local-large-keys": (text_cfg({"type": "aft-local", "window": 8}), {"key_gain": 40.0}),
    "lm-local-cancelling": (text_cfg({"type": "aft-local", "window": 8, "factorised": False}),
                            {"key_gain": 10.0, "bias_shift": -14.0}),
    "lm-local-no-global": (text_cfg({"type": "aft-local", "window": 8, "global": False}), {}),
    "lm-local-no-global-large-keys": (text_cfg({"type": "aft-local", "window": 8, "global": False}),
                                      {"key_gain": 40.0}),
    "lm-full": (text_cfg({"type": "aft-full"}), {}),
    "lm-simple": (text_cfg({"type": "aft-simple"}), {}),
    "lm-conv-heads32-k16": (text_cfg({"type": "aft-conv", "heads": 32, "kernel": 16}), {}),
    "lm-conv-heads4-k5": (text_cfg({"type": "aft-conv", "heads": 4, "kernel": 5}), {}),
    "lm-attention": (text_cfg({"type": "attention", "heads": 4}), {}),
    "pixels-local": (text_cfg({"type": "aft-local", "window": 16}, "image-generation"), {}),
    "text-fastformer": (text_cfg({"type": "fastformer", "heads": 4, "share_value_query": True}, "text-classification",
                                 share_layers=True),
                        {}),
    "text-fastformer-own-value": (text_cfg({"type": "fastformer", "heads": 4}, "text-classification"), {}),
    "text-simple-attention": (text_cfg({"type": "simple-attention", "heads": 4}, "text-classification"), {}),
    "text-attention": (text_cfg({"type": "attention", "heads": 4}, "text-classification"), {}),
    "lm-local-0": (text_cfg({"type": "aft-local", "window": 0}), {}),
    "lm-conv-k256": (text_cfg({"type": "aft-conv", "heads": 4, "kernel": 256}, context=260, dim=16, depth=1), {}),
    "image-sima-l2": (image_cfg({"type": "sima", "heads": 4, "norm": "l2"}), {}),
    "image-sima-none": (image_cfg({"type": "sima", "heads": 4, "norm": "none"}), {}),
    "image-conv-pooled-by-attention": (image_cfg({"type": "aft-conv", "heads": 4, "kernel": [3, 3]}, dim=24,
                                                 pooling="attention"), {}),
    "text-simple-attention-unscaled": (text_cfg({"type": "simple-attention", "heads": 4, "scale": False},
                                                "text-classification"), {}),
    "text-fastformer-pooled-by-attention": (text_cfg({"type": "fastformer", "heads": 4}, "text-classification",
                                                     pooling="attention"), {}),
    "text-conv-class-token": (text_cfg({"type": "aft-conv", "heads": 4, "kernel": 5}, "text-classification",
                                       pooling="class-token"), {}),
    "image-conv-one-tap": (image_cfg({"type": "aft-conv", "heads": 8, "kernel": [9, 9], "reparameterised": False},
                                     dim=24), {"one_tap": True}),
}


def main(out, seed):
    for n, (name, (cfg, how)) in enumerate(CASES.items()):
        rng = np.random.default_rng([seed, n])
        folder = f"{out}/{name}"
        os.makedirs(folder, exist_ok=True)
        p = build(rng, cfg, **how)
        json.dump(cfg, open(folder + "/config.json", "w"), indent=1)
        write_safetensors(folder + "/model.safetensors", p, {"format": "pt"})
        m, cases = Model(folder), {}
        if cfg["input"]["kind"] == "image":
            sizes = [tuple(cfg["input"]["size"])] * 2
            if cfg["mixer"]["type"] == "aft-conv":  # fully convolutional: any multiple of the patch will do
                ph, pw = cfg["input"]["patch"]
                sizes.append((cfg["input"]["size"][0] + 2 * ph, cfg["input"]["size"][1] - 3 * pw))
            for k, (H, W) in enumerate(sizes):
                cases[f"input.{k}"] = rng.integers(0, 256, (H, W, 3), dtype=np.uint8)
                cases[f"logits.{k}"] = m.image_logits(cases[f"input.{k}"]).astype(np.float32)
        else:
            T = cfg["input"]["context"] - ("cls_token" in p)
            for k, t in enumerate((1, 2, T // 2 + 1, T)):
                ids = rng.integers(0, 256, t, dtype=np.uint8)
                f = m.text_logits if cfg["task"] == "text-classification" else m.lm_logits
                cases[f"input.{k}"] = ids
                cases[f"logits.{k}"] = f(ids).astype(np.float32)
        write_safetensors(folder + "/cases.safetensors", cases)
        z = cases["logits.0"]
        print(f"{name:32s} logits {z.shape} range {z.min():.2f} .. {z.max():.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
