#!/usr/bin/env python3
"""How fast this build computes beside another one's, in turns of milliseconds on the same processors.

    tests/bench/builds.py --other DIR [--seconds S] [--threads N] [--only TEXT]      from the project's root, after make

DIR is another checkout of the project, in which make has run, and whose turns.c must heed AFTD_ISA if that is set. The
standard library alone; the compiler and the libraries are those of $CC and $LIBS, as `make bench-builds` gives them.

Two processes hold the same model of the papers' sizes with random weights, one with each build's engine. One computes
while the other sleeps, this, other, other, this and so on, so that a machine which changes its speed changes both: a
ratio of each pair, and of those the median and the middle half. Above 1 this build is the faster.
"""
import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("build/bench")
SOURCE = "tests/bench/turns.c"  # of each checkout, for the engine's interface is its own
PICTURES, TEXTS = ("aft-conv-small-224",), ("aft-local-24x256", "aft-local-12x512")
FIGURES = {**dict.fromkeys(PICTURES, ("batch 1", "batch 8")),
           **dict.fromkeys(TEXTS, ("streams 1", "streams 8", "streams 64", "prompt 512"))}
PRECISIONS = ("f32", "bf16", "int8")
WARM_UP, PAIRS_MIN = 3, 7


def build(tree, name):
    program = OUT / f"turns.{name}"
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fopenmp", "-pthread", "-I", str(tree), "-o",
               str(program), str(tree / SOURCE), str(tree / "build/libaftd.a"),
               *shlex.split(os.environ.get("LIBS", ""))]
    if subprocess.run(shlex.split(command[0]) + command[1:]).returncode != 0:
        sys.exit(f"{tree / SOURCE} could not be linked with {tree}/build/libaftd.a; has make run there?")
    return program


class Worker:
    def __init__(self, program, model, precision, threads):
        self.process = subprocess.Popen([program, model, precision, str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def turn(self, figure):
        self.process.stdin.write(figure + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{figure}: the worker has ended")
        return float(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(this, other, figure, seconds):
    for _ in range(WARM_UP):
        this.turn(figure)
        other.turn(figure)
    mine, theirs, end = [], [], time.monotonic() + seconds
    while time.monotonic() < end or len(mine) < PAIRS_MIN:
        first, second = (this, mine), (other, theirs)
        for worker, times in ((first, second) if len(mine) % 2 == 0 else (second, first)):
            times.append(worker.turn(figure))
    return statistics.median(mine), [b / a for a, b in zip(mine, theirs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", type=Path, required=True, help="a checkout of the project that make has built")
    parser.add_argument("--seconds", type=float, default=10, help="for each figure (10)")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each processor (0)")
    parser.add_argument("--only", default="", help="figures whose model, precision and name have this in them")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    programs = build(Path("."), "this"), build(options.other, "other")
    print("| model | precision | turn | this build, ms | other's time over this one's: median | middle half | pairs |")
    print("| --- | --- | --- | ---: | ---: | --- | ---: |")
    for model, figures in FIGURES.items():
        for precision in PRECISIONS:
            wanted = [figure for figure in figures if options.only in f"{model} {precision} {figure}"]
            if not wanted:
                continue
            workers = [Worker(program, model, precision, options.threads) for program in programs]
            for figure in wanted:
                mine, ratios = compare(*workers, figure, options.seconds)
                low, middle, high = statistics.quantiles(ratios, n=4)
                print(f"| {model} | {precision} | {figure} | {1e3 * mine:.3f} | {middle:.3f} | "
                      f"{low:.3f} to {high:.3f} | {len(ratios)} |", flush=True)
            for worker in workers:
                worker.end()


if __name__ == "__main__":
    main()
