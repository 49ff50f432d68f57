#!/usr/bin/env python3
"""What pictures do to running streams and streams to pictures: gaps and rates through HTTP, each beside the other.

    tests/bench/beside.py [--rounds N] [--seconds S] [--side LABEL='build/aftd OPTION...']...

From the project's root, after make; the standard library alone. Streams are AFT-local's, L6 d192, 8 and 64 in a
closed loop (`aft load`), each answer 100 bytes. Beside them run as many pictures as 16 clients in a closed loop send:
to the shipped AFT-conv (32 px), then to AFT-conv small of 224 px with random weights, batches of 8. Each side is a
daemon with its own options, another build's where its path says so; all are up at once, idle but for the one
that is measured, and are measured in turn, in an order that changes every round. fp32.

A gap is the time between two events of one stream as the client sees them; with 64 streams an event carries what came
in 12.8 ms. Pictures and bytes are counted by the daemon meanwhile.
"""
import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import mixers
from serving import aftd_daemon, load

STREAMS = (8, 64)
TEXT_BYTES = 100  # of an answer: those that are under way when the time is over are still awaited
PICTURE_CLIENTS = 16
TEXT_MODEL, SMALL_MODEL, LARGE_MODEL = "enwik8-aft-local", "cifar10-aft-conv", "aft-conv-small-224"
BESIDE = {"nothing": None, SMALL_MODEL: SMALL_MODEL, LARGE_MODEL: LARGE_MODEL}
MODELS = Path("tests/data/models")
SAMPLE = MODELS / SMALL_MODEL / "sample.jpg"
DIM, DEPTH, HEADS, KERNEL, PATCH, SIZE, CLASSES = 384, 12, 384, 11, 16, 224, 10


def shapes():
    model = {"patch_embed.weight": [DIM, 3, PATCH, PATCH], "norm.weight": [DIM], "norm.bias": [DIM],
             "head.weight": [CLASSES, DIM]}
    for i in range(DEPTH):
        b = f"blocks.{i}."
        model |= {b + f"norm{j}.{what}": [DIM] for j in (1, 2) for what in ("weight", "bias")}
        model |= {b + f"mixer.{name}.weight": [DIM, DIM] for name in ("q", "k", "v", "out")}
        model |= {b + "mixer.conv.weight": [HEADS, KERNEL, KERNEL], b + "mlp.fc1.weight": [4 * DIM, DIM],
                  b + "mlp.fc2.weight": [DIM, 4 * DIM]}
    return model


def write_picture_model(folder):
    """AFT-conv small of 224 px; its numbers are random, its speed is not."""
    mixers.write_tensors(folder, shapes(), {
        "format": "aftd-model", "version": 1, "task": "image-classification", "dim": DIM, "depth": DEPTH,
        "mlp_ratio": 4, "mixer": {"type": "aft-conv", "heads": HEADS, "kernel": [KERNEL, KERNEL]},
        "labels": [str(i) for i in range(CLASSES)],
        "input": {"kind": "image", "size": [SIZE, SIZE], "patch": [PATCH, PATCH], "mean": [0.5] * 3, "std": [0.25] * 3,
                  "resize_to": SIZE}})


class Daemon(aftd_daemon.Daemon):
    def __init__(self, models, command):
        super().__init__("--models-dir", models, "--precision=f32", "--log-requests=false", "--prefix-cache-mb=0",
                         command=command.split())

    def done(self):
        """Pictures and bytes so far."""
        return self.counters("aftd_pictures_classified_total", "aftd_generated_bytes_total")

    def counters(self, *names):
        """Of all models together."""
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return [sum(float(line.split()[1]) for line in lines if line.startswith(name + "{"))
                for name in names]


def measure(daemon, streams, model, seconds):
    """Some seconds of so many streams, beside pictures to that model or none."""
    pictures = model and load(daemon.url, SAMPLE, "--model", model, "--concurrency",
                              PICTURE_CLIENTS, "--duration", 3600)
    try:
        time.sleep(0.3)
        first, start = daemon.done(), time.monotonic()
        told, _ = (text := load(daemon.url, "--model", TEXT_MODEL, "--concurrency", streams, "--duration",
                                seconds, "--prompt", "T", "--max-tokens", TEXT_BYTES)).communicate()
        rates = [(now - before) / (time.monotonic() - start) for now, before in zip(daemon.done(), first)]
    finally:
        if pictures:
            pictures.kill()
            pictures.wait()
    if text.returncode != 0:
        sys.exit("aft load failed")
    answer = json.loads(told)
    gap = answer["event_gap_ms"]
    return {"gap p50, ms": gap["p50"], "gap p99, ms": gap["p99"], "p99/p50": gap["p99"] / gap["p50"],
            "longest gap, ms": gap["max"], "pictures/s": rates[0], "bytes/s": rates[1]}


def show(label, rounds):
    for key in rounds[0]:
        values = [r[key] for r in rounds]
        worst = min(values) if key.endswith("/s") else max(values)
        if any(values):
            print(f"    {label:16} {key:16} {statistics.median(values):10.2f}   (worst {worst:.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (3)")
    parser.add_argument("--side", action="append", metavar="LABEL=COMMAND", help="a daemon: build/aftd and its options")
    parser.add_argument("--streams", type=int, action="append", help="so many, instead of 8 and then 64")
    parser.add_argument("--beside", action="append", choices=list(BESIDE), help="this alone; may be repeated")
    options = parser.parse_args()
    sides = dict(side.split("=", 1) for side in options.side or ["aftd=build/aftd"])
    with tempfile.TemporaryDirectory() as models:
        for name in (TEXT_MODEL, SMALL_MODEL):
            Path(models, name).symlink_to((MODELS / name).resolve())
        write_picture_model(Path(models, LARGE_MODEL))
        daemons = {}
        try:
            for label, command in sides.items():
                daemons[label] = Daemon(models, command)
            cells = [(n, m) for n in options.streams or STREAMS for m in options.beside or BESIDE]
            results = {(cell, label): [] for cell in cells for label in sides}
            for _ in range(options.rounds):
                for cell in cells:
                    for label in random.sample(list(sides), len(sides)):
                        results[cell, label].append(measure(daemons[label], cell[0], BESIDE[cell[1]], options.seconds))
            for streams, beside in cells:
                print(f"{streams} streams beside {beside}: medians of {options.rounds} rounds")
                for label in sides:
                    show(label, results[(streams, beside), label])
        finally:
            for daemon in daemons.values():
                daemon.stop()


if __name__ == "__main__":
    main()
