#!/usr/bin/env python3
"""What each token mixer costs, and how that grows with the length T: the table of RESULTS.md.

    tests/bench/mixers.py [T ...]       from the project's root, after make; the standard library alone

Models of one size (dim 256, 6 blocks) with random weights are written to a temporary folder and measured by `aft bench`
on one thread. Mixers with a causal form generate text: prefill is one prompt of T bytes, a step is one byte of one
stream behind 64 and behind T - 1 others. The others classify a text of T bytes.
"""
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

DIM, DEPTH, HIDDEN, HEADS, WINDOW, KERNEL, FACTORS, CLASSES = 256, 6, 1024, 8, 32, 32, 64, 10
LENGTHS = (256, 1024, 4096)
CAUSAL = ("aft-full", "aft-local", "aft-simple", "aft-conv", "attention")
OTHERS = ("sima", "simple-attention", "fastformer")
RUNS = 3
ONE = b"\x80\x3f"  # 1.0 in bf16
LOW = bytes(b | 0x80 for b in range(256))
HIGH = bytes((b & 0x80) | 0x3C for b in range(256))  # with a low byte from LOW: 2^-6 to 2^-5, either sign


def numbers(rng, count):
    """Random bf16 of about 1/40 in size."""
    out = bytearray(2 * count)
    out[0::2], out[1::2] = rng.randbytes(count).translate(LOW), rng.randbytes(count).translate(HIGH)
    return bytes(out)


def shapes(mixer, tokens, dim=DIM, depth=DEPTH):
    """{tensor: shape} of a model."""
    hidden = dim * HIDDEN // DIM
    outputs = 256 if mixer in CAUSAL else CLASSES
    model = {"tok_embed": [256, dim], "norm.weight": [dim], "norm.bias": [dim], "head.weight": [outputs, dim]}
    for i in range(depth):
        b = f"blocks.{i}."
        model |= {b + "norm1.weight": [dim], b + "norm1.bias": [dim], b + "norm2.weight": [dim],
                  b + "norm2.bias": [dim], b + "mlp.fc1.weight": [hidden, dim], b + "mlp.fc2.weight": [dim, hidden],
                  b + "mixer.q.weight": [dim, dim], b + "mixer.v.weight": [dim, dim],
                  b + "mixer.k.weight": [HEADS if mixer == "aft-conv" else dim, dim]}
        if mixer != "simple-attention":
            model[b + "mixer.out.weight"] = [dim, dim]
        if mixer in ("aft-full", "aft-local"):
            model |= {b + "mixer.pos_u": [tokens, FACTORS], b + "mixer.pos_v": [tokens, FACTORS]}
        if mixer == "aft-conv":
            model[b + "mixer.conv.weight"] = [HEADS, KERNEL]
        if mixer == "fastformer":
            model |= {b + "mixer.query_score": [HEADS, dim // HEADS], b + "mixer.key_score": [HEADS, dim // HEADS]}
    return model


def write_model(folder, mixer, tokens, dim=DIM, depth=DEPTH):
    kind = {"type": mixer}
    if mixer in ("aft-conv", "attention", *OTHERS):
        kind["heads"] = HEADS
    if mixer == "aft-local":
        kind["window"] = WINDOW
    if mixer == "aft-conv":
        kind["kernel"] = KERNEL
    config = {"format": "aftd-model", "version": 1, "dim": dim, "depth": depth, "mlp_ratio": HIDDEN // DIM,
              "mixer": kind, "task": "text-generation" if mixer in CAUSAL else "text-classification",
              "input": {"kind": "bytes", "context": tokens}}
    if mixer not in CAUSAL:
        config["labels"] = [str(i) for i in range(CLASSES)]
    write_tensors(folder, shapes(mixer, tokens, dim, depth), config)


def write_tensors(folder, tensors, config, given=()):
    """A model's folder: random numbers of these {tensor: shape}, or those given, in bf16, and its config.json."""
    rng, header, blobs, at = random.Random(0), {}, [], 0
    for name, shape in tensors.items():
        count = 1
        for side in shape:
            count *= side
        data = ONE * count if "norm" in name and name.endswith("weight") else numbers(rng, count)
        if name in given:
            data = given[name]
        if name == "head.weight" and "labels" not in config:  # likeliest are ASCII: parts of characters are held
            data = data[:len(data) // 2] + bytes(len(data) // 2)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def run(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def state_bytes(folder):
    return json.loads(run("build/aft", "inspect", folder, "--json"))["stream_bytes"]


def measure(folder, mixer, tokens):
    """(microseconds a byte of a whole text, milliseconds a step behind 64 and T - 1 bytes, bytes of state)."""
    more = ["--positions", f"64,{tokens - 1}"] if mixer in CAUSAL else []
    told = json.loads(run("build/aft", "bench", folder, "--json", "--threads", "1", "--runs", str(RUNS), *more))
    if mixer not in CAUSAL:
        return 1e6 / (told["texts_per_second_batch_1"] * tokens), None, None, None
    return (1e6 / told["prefill_bytes_per_second"], told["step_ms_at_64"], told[f"step_ms_at_{tokens - 1}"],
            state_bytes(folder))


def main():
    lengths = [int(x) for x in sys.argv[1:]] or LENGTHS
    print("| mixer | T | whole text, µs a byte | step at 64, ms | step at T - 1, ms | state of a stream, kB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as parent:
        for mixer in (*CAUSAL, *OTHERS):
            for tokens in lengths:
                folder = Path(parent, f"{mixer}-{tokens}")
                write_model(folder, mixer, tokens)
                whole, first, last, state = measure(folder, mixer, tokens)
                steps = f"{first:.2f} | {last:.2f} | {state / 1000:,.0f}" if first else " | | "
                print(f"| {mixer} | {tokens} | {whole:.0f} | {steps} |", flush=True)


if __name__ == "__main__":
    main()
