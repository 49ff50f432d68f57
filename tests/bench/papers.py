#!/usr/bin/env python3
"""What each token mixer costs beside softmax attention as its input grows: AFT's table 1, SimA's table 3 and figure 1.

    tests/bench/papers.py [--texts T ...] [--sides N ...] [--chart FILE.svg]     from the project's root, after make

Models of one size with random weights classify a text of T bytes (dim 256, 6 blocks) or a picture of N x N pixels in
patches of 16 (dim 192, 12 blocks: the papers' tiny), one at a time, on every processor. Time is what `aft classify`
takes for each further file, which it reads as well; memory what it had resident at most, for one. Then what kernels of
one tap a head save of a picture's time, on one thread (AFT's appendix). The standard library alone.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from mixers import CAUSAL, CLASSES, HEADS, ONE, OTHERS, run, shapes, write_model, write_tensors

TEXTS, SIDES, PATCH = (256, 1024, 4096, 16384), (224, 384, 768, 1536), 16
DIM, DEPTH, KERNEL = 192, 12, 11
MIXERS = ("attention", *(m for m in (*CAUSAL, *OTHERS) if m != "attention"))
PICTURES = tuple(m for m in MIXERS if m not in ("aft-full", "aft-local"))  # those whose positions have any number
MATRIX_MOST = 4096  # tokens, of a matrix of all pairs for each block: as many squared, four bytes each
COLOURS = ("#000000", "#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#7f7f7f")
RUNS, SECONDS, MANY = 5, 1.0, 500  # of each: repetitions; what one takes, about; files in one at most


def write_pictures(folder, mixer, side, kernel=KERNEL, one_tap=False):
    """A classifier of pictures."""
    grid = side // PATCH
    model = {name: shape for name, shape in shapes(mixer, grid * grid, DIM, DEPTH).items() if name != "tok_embed"}
    model |= {"patch_embed.weight": [DIM, 3, PATCH, PATCH], "head.weight": [CLASSES, DIM]}
    kind, given, rng = {"type": mixer}, {}, random.Random(0)
    if mixer in ("aft-conv", "attention", *OTHERS):
        kind["heads"] = HEADS
    if mixer == "aft-conv":
        kind["kernel"], nothing = kernel, bytes(len(ONE))
        for i in range(DEPTH):
            conv, taps = f"blocks.{i}.mixer.conv.weight", kernel * kernel
            model[conv] = [HEADS, kernel, kernel]
            if one_tap:
                counts = [rng.randrange(taps) for _ in range(HEADS)]
                given[conv] = b"".join(ONE if j == c else nothing for c in counts for j in range(taps))
    config = {"format": "aftd-model", "version": 1, "dim": DIM, "depth": DEPTH, "mixer": kind,
              "task": "image-classification", "labels": [str(i) for i in range(CLASSES)],
              "input": {"kind": "image", "size": [side, side], "patch": [PATCH, PATCH], "mean": [0.5] * 3,
                        "std": [0.5] * 3, "resize_to": side}}
    write_tensors(folder, model, config, given)


def write_texts(folder, mixer, tokens):
    """A classifier of texts, of any mixer."""
    write_model(folder, mixer, tokens)
    config = json.loads((folder / "config.json").read_text())
    if config["task"] != "text-classification":  # its head has more outputs than there are labels: as many labels then
        config |= {"task": "text-classification", "labels": [str(i) for i in range(256)]}
        (folder / "config.json").write_text(json.dumps(config))


def png(side):
    """A picture of side x side pixels."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(bytes([0]) + bytes((x * y >> 4) & 255 for x in range(3 * side)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0))
            + part(b"IDAT", zlib.compress(rows, 1)) + part(b"IEND", b""))


def classify(folder, file, count):
    """Seconds and MB resident at most that it takes to classify a file so many times."""
    before = time.perf_counter()
    p = subprocess.Popen(["build/aft", "classify", folder, *[file] * count], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"aft classify {folder} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - before, used.ru_maxrss / 1000


def measured(folder, data):
    """(milliseconds for one input, the median of RUNS; MB resident at most)"""
    file = folder.with_suffix(".png" if data[:4] == b"\x89PNG" else ".txt")
    file.write_bytes(data)
    more = max(1, min(MANY, round(SECONDS / max(1e-3, classify(folder, file, 2)[0] - classify(folder, file, 1)[0]))))
    seconds, memory = [], []
    for _ in range(RUNS):
        (few, mb), (many, _) = classify(folder, file, 1), classify(folder, file, 1 + more)
        seconds.append((many - few) / more)
        memory.append(mb)
    return 1000 * statistics.median(seconds), max(memory)


def rows(parent, mixers, sizes, write, inputs, tokens_of, what):
    """{mixer: {size: (ms, MB)}}, printed as a table while it is measured."""
    print(f"\n| mixer | {' | '.join(f'{what} {size:,}' for size in sizes)} |\n" + "| --- " * (len(sizes) + 1) + "|")
    found = {}
    for mixer in mixers:
        found[mixer] = {}
        for size in sizes:
            if mixer in ("aft-full", "aft-local") and tokens_of(size) > MATRIX_MOST:
                continue
            folder = Path(parent, f"{what}-{mixer}-{size}")
            writes = multiprocessing.Process(target=write, args=(folder, mixer, size))
            writes.start()  # what a program has at most is at least what this one has where it starts it
            writes.join()
            found[mixer][size] = measured(folder, inputs(size))
        cells = (found[mixer].get(size) for size in sizes)
        print(f"| {mixer} | {' | '.join(f'{c[0]:,.1f} ms, {c[1]:,.0f} MB' if c else '' for c in cells)} |", flush=True)
    return found


def one_tap(parent):
    """Milliseconds of a picture by kernels of all taps, of one a head and of 1 x 1, in turns."""
    folders = [Path(parent, name) for name in ("all", "one", "least")]
    write_pictures(folders[0], "aft-conv", SIDES[0])
    write_pictures(folders[1], "aft-conv", SIDES[0], one_tap=True)
    write_pictures(folders[2], "aft-conv", SIDES[0], kernel=1)
    bench = lambda folder: json.loads(run("build/aft", "bench", folder, "--threads", "1", "--json"))
    told = [[1000 / bench(folder)["images_per_second_batch_1"] for folder in folders] for _ in range(RUNS)]
    print(f"\n| aft-conv, one thread | {KERNEL} x {KERNEL} taps | one of them a head | 1 x 1 |\n" + "| --- " * 4 + "|")
    print(f"| pixels {SIDES[0]} | {' | '.join(f'{statistics.median(ms):.2f} ms' for ms in zip(*told))} |")


# ---- the chart -------------------------------------------------------------------------------------------------------


def panel(found, left, title, unit, pick):
    """Lines over sizes, both axes logarithmic, 360 x 300 pixels from `left` on."""
    values = [pick(v) for of in found.values() for v in of.values()]
    sizes = sorted({size for of in found.values() for size in of})
    low, high = math.log(min(values)), math.log(max(values))
    x = lambda size: left + 60 + 280 * (math.log(size) - math.log(sizes[0])) / (math.log(sizes[-1] / sizes[0]) or 1)
    y = lambda value: 270 - 230 * (math.log(value) - low) / ((high - low) or 1)
    parts = [f'<text x="{left + 200}" y="20" text-anchor="middle">{title}</text>']
    for size in sizes:
        parts.append(f'<text x="{x(size):.0f}" y="288" text-anchor="middle">{size}</text>')
    for power in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1):
        parts.append(f'<path d="M{left + 60} {y(10.0 ** power):.1f}h280" stroke="#ddd"/><text x="{left + 54}" '
                     f'y="{y(10.0 ** power) + 4:.1f}" text-anchor="end">{10.0 ** power:g} {unit}</text>')
    for mixer, of in found.items():
        points = " ".join(f"{x(size):.1f},{y(pick(v)):.1f}" for size, v in of.items())
        colour = COLOURS[MIXERS.index(mixer)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "".join(parts)


def chart_of(path, of_panels, mixers=MIXERS):
    """A file with panel() of each (found, title, unit, pick), and which line is which."""
    panels = [panel(found, 380 * i, *about) for i, (found, *about) in enumerate(of_panels)]
    legend = "".join(f'<text x="{20 + i % 4 * 160}" y="{320 + i // 4 * 18}" fill="{COLOURS[MIXERS.index(mixer)]}">'
                     f"{mixer}</text>" for i, mixer in enumerate(mixers))
    Path(path).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {380 * len(panels)} 350" '
                          f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
                          f'{"".join(panels)}{legend}</svg>\n')


def chart(path, texts, pictures):
    which = (("time", "ms", lambda v: v[0]), ("memory", "MB", lambda v: v[1]))
    kinds = [(found, kind) for found, kind in ((texts, "texts, bytes"), (pictures, "pictures, pixels a side")) if found]
    chart_of(path, [(found, f"{kind}: {what}", unit, pick) for found, kind in kinds for what, unit, pick in which])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--texts", type=int, nargs="*", default=TEXTS, metavar="T", help=f"lengths {TEXTS}; none: no texts")
    p.add_argument("--sides", type=int, nargs="*", default=SIDES, metavar="N", help=f"sides {SIDES}; none: no pictures")
    p.add_argument("--chart", metavar="FILE", default="build/papers.svg", help="where to draw it (build/papers.svg)")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        texts = args.texts and rows(parent, MIXERS, args.texts, write_texts,
                                    lambda t: bytes(97 + i % 26 for i in range(t)), lambda t: t, "bytes")
        pictures = args.sides and rows(parent, PICTURES, args.sides, write_pictures, png,
                                       lambda side: (side // PATCH) ** 2, "pixels")
        chart(args.chart, texts, pictures)
        print(f"\n{args.chart}")
        if args.sides:
            one_tap(parent)


if __name__ == "__main__":
    main()
