#!/usr/bin/env python3
"""aftd beside PyTorch, ONNX Runtime, OpenVINO and OpenBLAS on equal work: a table, figures, a chart in build/bench/.

    make bench-peers [PEERS_FLAGS=--quick]          after make deps-peers

Models with random weights of one seed are written to a temporary folder; every program runs those, in a process of
its own and on as many threads. Each round measures all of them one after the other, beginning with another one each
time, so that a machine that changes its speed changes all; figures are medians over the rounds with the lowest and
highest, and ratios are medians of the rounds' ratios. One that is missing or fails is named with the reason, and the
others go on.

aft bench times its streams behind their first window, which is full there; the recurrent step in PyTorch goes over the
whole window at every byte, so that its cost does not depend on the position.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench"
AFT = ROOT / "build" / "aft"
PRECISIONS = ("f32", "bf16", "int8")
SETUP_SECONDS, ROUND_SECONDS = 300, 120  # in which a peer must answer
NAMES = {"aftd": "aftd", "torch": "PyTorch, eager", "torch-compiled": "PyTorch, torch.compile",
         "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "openblas": "OpenBLAS sgemm"}
COLOURS = {"aftd": "#1b6ca8", "torch": "#e07b39", "torch-compiled": "#b3541e", "onnxruntime": "#5b8c5a",
           "openvino": "#8e6bb0", "openblas": "#7d7d7d"}


class PeerError(Exception):
    """Why a peer is not measured."""


@dataclass
class Work:
    name: str  # of the model's folder too
    title: str
    kind: str  # "pictures", "streams" or "products"
    unit: str
    cases: list
    peers: list  # (kind, precision)
    share: float  # of the time that there is
    figures: dict = field(default_factory=dict)  # {(kind, precision): {case: [a figure of each round]}}
    about: dict = field(default_factory=dict)  # {(kind, precision): {"about", "error"}}
    left_out: dict = field(default_factory=dict)  # {(kind, precision): reason}

    def amount(self, case):
        """How much of the unit one run is."""
        return 2e-9 * case[0] * case[1] * case[2] if self.kind == "products" else case

    def case_name(self, case):
        if self.kind == "products":
            return " x ".join(str(side) for side in case)
        return f"batch {case}" if self.kind == "pictures" else f"{case} stream{'' if case == 1 else 's'}"


OURS = [("aftd", precision) for precision in PRECISIONS]
PRODUCTS = [(m, n, k) for rows, sides in (((196, 1568), ((1152, 384), (384, 384), (1536, 384), (384, 1536))),
                                          ((1, 8, 64), ((768, 256), (1024, 256), (256, 1024), (2048, 512))))
            for m in rows for n, k in sides]


def works(quick):
    torch = [("torch", "f32"), ("torch", "bf16")]
    recurrent = [("torch", "f32")]
    if not quick:
        torch += [("torch-compiled", "f32"), ("torch-compiled", "bf16")]
        recurrent += [("torch-compiled", "f32")]
    graphs = [("onnxruntime", "f32"), ("onnxruntime", "int8"), *(("openvino", p) for p in PRECISIONS)]
    streams = [1, 8, 64]
    every = [
        Work("small", "AFT-conv small, 224 px", "pictures", "images/s", [1, 8], OURS + torch + graphs, 0.45),
        Work("l24", "AFT-local L24 d256", "streams", "bytes/s", streams, OURS + recurrent, 0.25),
        Work("l12", "AFT-local L12 d512", "streams", "bytes/s", streams, OURS + recurrent, 0.25),
        Work("products", "products m x n x k, fp32", "products", "GFLOP/s", PRODUCTS, [("openblas", "f32")], 0.05),
    ]
    return [work for work in every if not (quick and work.name == "l12")]


# ---- models ----------------------------------------------------------------------------------------------------------


def write_models(parent):
    """Model directories of every work; biases and kernels far from zero, as training leaves them."""
    import numpy as np
    import torch

    from aft_train import MixerConfig, Model, ModelConfig, export

    torch.manual_seed(1)
    local = MixerConfig("aft-local", window=32)
    configs = {
        "small": ModelConfig("image-classification", dim=384, depth=12, size=(224, 224), patch=(16, 16),
                             mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), labels=[str(i) for i in range(1000)],
                             mixer=MixerConfig("aft-conv", heads=384, kernel=(11, 11))),
        "l24": ModelConfig("text-generation", dim=256, depth=24, context=1024, mixer=local),
        "l12": ModelConfig("text-generation", dim=512, depth=12, context=1024, mixer=local),
    }
    for name, config in configs.items():
        model = Model(config)
        for at, p in model.named_parameters():
            if at.endswith(("conv.gain", "conv.bias", "pos_u", "pos_v")):  # gains of 0 would be no kernels at all
                torch.nn.init.normal_(p, std=0.3)
        rng = np.random.default_rng(1)
        case = rng.integers(0, 256, (224, 224, 3) if name == "small" else (64,), dtype=np.uint8)
        export(model, parent / name, [case])


# ---- who is measured -------------------------------------------------------------------------------------------------


def aft(*arguments, precision="f32"):
    """Standard output of the program. Raises PeerError."""
    environment = {**os.environ, "AFTD_PRECISION": precision}
    try:
        done = subprocess.run([AFT, *map(str, arguments)], env=environment, capture_output=True, text=True,
                              timeout=ROUND_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise PeerError(f"{AFT.name}: {e}") from None
    if done.returncode != 0:
        raise PeerError((done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1])
    return done.stdout


class Ours:
    """aft bench, all cases at once."""

    def __init__(self, work, precision, folder, threads):
        self.work, self.precision, self.folder, self.threads = work, precision, folder, threads
        # The cost at two positions is not compared here.
        self.more = ["--positions", "16,32"] if work.kind == "streams" else []
        told = json.loads(aft("inspect", folder, "--json", precision=precision))
        if told["precision"] != precision:
            raise PeerError("this build of aft does not heed AFTD_PRECISION")
        aft("verify", folder)
        about = "{isa} kernels, {threads} threads, products in {precision}, {blas}".format(**told)
        self.about = {"about": about, "error": None}

    def measure(self, seconds):
        runs = max(3, round(4 * seconds))
        told = json.loads(aft("bench", self.folder, "--json", "--threads", self.threads, "--runs", runs, *self.more,
                              precision=self.precision))
        key = "images_per_second_batch_{}" if self.work.kind == "pictures" else "bytes_per_second_{}_streams"
        return {case: told[key.format(case)] for case in self.work.cases}

    def close(self):
        pass


class Worker:
    """A process of peer_worker.py."""

    def __init__(self, work, kind, precision, folder, threads):
        self.work = work
        spec = {"work": work.kind, "kind": kind, "precision": precision, "threads": threads, "cases": work.cases,
                "scratch": str(folder.parent), "model": str(folder) if folder.is_dir() else None}
        environment = {  # compiled code is kept from run to run
            "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": str(OUT / "inductor"), **os.environ}
        self.log = open(OUT / f"{work.name}-{kind}-{precision}.log", "w")
        self.process = subprocess.Popen([sys.executable, Path(__file__).with_name("peer_worker.py"), json.dumps(spec)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=environment)
        self.about = self.answer(SETUP_SECONDS)

    def answer(self, seconds):
        """One line of the worker, as an object. Raises PeerError."""
        import select

        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        told = json.loads(line) if line else {"failed": f"no answer in {seconds} s" if not ready else
                                              f"ended without one; see {self.log.name}"}
        if "failed" in told:
            self.close()
            raise PeerError(told["failed"])
        return told

    def measure(self, seconds):
        figures = {}
        for case in self.work.cases:
            part = 0.1 if self.work.kind == "products" else seconds
            self.process.stdin.write(json.dumps({"case": case, "seconds": part}) + "\n")
            self.process.stdin.flush()
            figures[case] = self.work.amount(case) / self.answer(ROUND_SECONDS)["seconds"]
        return figures

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


# ---- rounds ----------------------------------------------------------------------------------------------------------


def label(peer):
    return f"{NAMES[peer[0]]}, {peer[1]}"


def leave_out(work, peer, reason):
    work.left_out[peer] = str(reason)
    work.figures.pop(peer, None)
    print(f"  {label(peer)} is left out: {reason}", flush=True)


def start(work, folder, threads):
    """-> {peer: the one that measures it}"""
    running = {}
    for peer in work.peers:
        try:
            running[peer] = Ours(work, peer[1], folder, threads) if peer[0] == "aftd" else \
                Worker(work, *peer, folder, threads)
            work.about[peer] = running[peer].about
        except (PeerError, OSError, ValueError) as e:
            leave_out(work, peer, e)
    return running


def measure(work, folder, options, deadline):
    """Rounds until there are enough, or no time for another."""
    print(f"{work.title}: starting", flush=True)
    running = start(work, folder, options.threads)
    try:
        for turn in range(options.rounds):
            began, order = time.monotonic(), list(running)
            shift = turn % max(1, len(order))
            for peer in order[shift:] + order[:shift]:
                try:
                    figures = running[peer].measure(options.seconds)
                except (PeerError, OSError, ValueError, KeyError) as e:
                    leave_out(work, peer, e)
                    running.pop(peer).close()
                    continue
                for case, figure in figures.items():
                    work.figures.setdefault(peer, {}).setdefault(case, []).append(figure)
            took = time.monotonic() - began
            print(f"  round {turn + 1} of {options.rounds}, {took:.0f} s", flush=True)
            if turn + 1 >= options.rounds_min and time.monotonic() + took > deadline:
                break
    finally:
        for peer in running.values():
            peer.close()


# ---- results ---------------------------------------------------------------------------------------------------------


def ratio(work, ours, peer, case):
    """How often ours is as fast as a peer, the median over rounds; None where one was not measured."""
    a, b = (work.figures.get(who, {}).get(case) for who in (ours, peer))
    return statistics.median(x / y for x, y in zip(a, b)) if a and b else None


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def rows_of(work):
    for case in work.cases:
        for peer, figures in work.figures.items():
            values = figures[case]
            told = {"work": work.title, "case": work.case_name(case), "program": NAMES[peer[0]], "precision": peer[1],
                    "unit": work.unit, "median": statistics.median(values), "lowest": min(values),
                    "highest": max(values), "rounds": values, "logits_error": work.about[peer]["error"]}
            if peer[0] not in ("aftd", "openblas"):
                told["aftd_over_it"] = ratio(work, ("aftd", peer[1]), peer, case)
                told["aftd_f32_over_it"] = ratio(work, ("aftd", "f32"), peer, case)
            yield told


def cells(work, peer, case):
    """A peer's median with the lowest and highest, and how often aftd in the same precision is as fast."""
    values = work.figures[peer][case]
    yield f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"
    if work.kind != "products":
        times = None if peer[0] == "aftd" else ratio(work, ("aftd", peer[1]), peer, case)
        yield "" if times is None else f"{times:.2f}"


def table(work):
    """Markdown: a row for each program, or, of products, for each shape."""
    line = lambda fields: "| " + " | ".join(fields) + " |"
    if work.kind == "products":
        head = [f"{work.title}, {work.unit}", *(label(peer) for peer in work.figures)]
        rows = [[work.case_name(case), *(cell for peer in work.figures for cell in cells(work, peer, case))]
                for case in work.cases]
    else:
        head = [f"{work.title}, {work.unit}"]
        for case in work.cases:
            head += [work.case_name(case), "aftd over it"]
        rows = [[label(peer), *(cell for case in work.cases for cell in cells(work, peer, case))]
                for peer in work.figures]
    return "\n".join(map(line, [head, ["---"] * len(head), *rows])) + "\n"


def machine():
    name = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), platform.processor())
    return f"{name}, {os.cpu_count()} processors"


def draw(all_works, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [(work, case) for work in all_works if work.kind != "products" and work.figures for case in work.cases]
    if not shown:
        return
    figure, axes = plt.subplots((len(shown) + 1) // 2, 2, figsize=(12, 2.6 * ((len(shown) + 1) // 2)), squeeze=False)
    for axis in axes.flat[len(shown):]:
        axis.axis("off")
    for axis, (work, case) in zip(axes.flat, shown):
        peers = list(work.figures)[::-1]
        values = [work.figures[peer][case] for peer in peers]
        medians = [statistics.median(v) for v in values]
        spread = [[m - min(v) for m, v in zip(medians, values)], [max(v) - m for m, v in zip(medians, values)]]
        axis.barh(range(len(peers)), medians, xerr=spread, color=[COLOURS[peer[0]] for peer in peers],
                  error_kw={"ecolor": "#444444", "capsize": 2, "elinewidth": 0.8})
        axis.set_yticks(range(len(peers)), [label(peer) for peer in peers], fontsize=8)
        axis.set_title(f"{work.title}, {work.case_name(case)}: {work.unit}", fontsize=9)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write(all_works, options):
    text = "\n".join(table(work) for work in all_works if work.figures)
    left = [f"- {work.title}: {label(peer)} is left out: {reason}"
            for work in all_works for peer, reason in work.left_out.items()]
    about = f"{machine()}; {options.threads} threads; medians of interleaved rounds\n"
    print(f"\n{about}\n{text}")
    (OUT / "peers.md").write_text(f"{about}\n{text}" + ("\n" + "\n".join(left) + "\n" if left else ""))
    (OUT / "peers.json").write_text(json.dumps({
        "machine": machine(), "threads": options.threads, "quick": options.quick,
        "programs": {f"{work.name}: {label(peer)}": a["about"] for work in all_works for peer, a in work.about.items()},
        "figures": [row for work in all_works for row in rows_of(work)],
        "left_out": {f"{work.name}: {label(peer)}": r for work in all_works for peer, r in work.left_out.items()},
    }, indent=1) + "\n")
    try:
        draw(all_works, OUT / "peers.png")
    except ImportError as e:
        print(f"no chart: {e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="some 2 minutes rather than 8: no torch.compile, no L12")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each program")
    parser.add_argument("--rounds", type=int, help="at most, 7 unless told (quick: 3)")
    parser.add_argument("--only", help="one work: small, l24, l12 or products")
    options = parser.parse_args()
    options.rounds_min = 2 if options.quick else 3  # however slow the machine is
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.seconds = 0.3 if options.quick else 0.8
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # all wait for their threads as briefly as aft does
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [work for work in works(options.quick) if options.only in (None, work.name)]
    if not chosen:
        parser.error(f"--only is {options.only}; expected small, l24, l12 (not with --quick) or products")
    began, total, passed = time.monotonic(), 105 if options.quick else 450, 0.0
    with tempfile.TemporaryDirectory() as parent:
        try:
            write_models(Path(parent))
        except ImportError as e:
            sys.exit(f"peers.py: {e}; make deps-peers installs what this needs")
        for work in chosen:
            passed += work.share
            measure(work, Path(parent, work.name), options, began + total * passed)
    print("aftd's own products have no column beside OpenBLAS's: aft bench reports none by shape")
    write(chosen, options)


if __name__ == "__main__":
    main()
