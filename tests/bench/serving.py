#!/usr/bin/env python3
"""What 64 streams through HTTP reach of what they reach in the process, and what a long prompt does to the others.

    tests/bench/serving.py [--rounds N] [--seconds S] [--model shipped|l24]     from the project's root, after make

The standard library alone. Two models in fp32: the shipped text model, and AFT-local L24 d256 with random weights.
Client and daemon share this machine, so each round measures, one after the other:

    http      `aft load`, 64 clients in a closed loop, one byte of prompt, texts of 300 bytes
    alone     `aft bench`, 64 streams in the process, nothing beside it
    beside    the same beside a process that takes as much of a processor as `aft load` did

"http/beside" is what serving costs by itself: daemon and bench have the same left. CPU time is by thread, from
/proc/PID/task. A gap is the time between two events of one stream as the client sees them; the last part adds a prompt
of 1,000 bytes to 63 running streams, whose texts are just long enough to be there while it is fed, and tells the
largest gap of any, beside that of a run without (of the shipped model, whose context is 512, only the last 511 bytes
of a prompt are fed). No states of prompts are kept, for it is always the same one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import mixers

STREAMS = 64
TEXT_BYTES = 450  # of one answer: within the context of both models, and so long that few begin at a time
START_SECONDS = 30
SHIPPED = Path("weights/models/enwik8-aft-local")
BURN = """
import sys, time
share, period = float(sys.argv[1]), 1e-3
start = time.monotonic()
while True:
    while time.process_time() < share * (time.monotonic() - start):
        pass
    time.sleep(period)
"""


class Daemon:
    """One model on a port of the kernel's choice."""

    def __init__(self, models):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(["build/aftd", "--models-dir", models, "--listen-port", "0", "--precision",
                                         "f32", "--log-requests", "false", "--prefix-cache-mb", "0"], stderr=self.log)
        self.url = None
        for _ in range(10 * START_SECONDS):
            self.log.seek(0)
            at = [line.split("listening on ")[1].split()[0] for line in self.log if "listening on " in line]
            if at:
                self.url = at[0]
                return
            time.sleep(0.1)
        sys.exit("aftd does not start")

    def cpu(self):
        """(seconds of the HTTP threads, of all others)."""
        seconds = [0.0, 0.0]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            ours = (task / "comm").read_text().strip() == "http"
            seconds[0 if ours else 1] += int((task / "schedstat").read_text().split()[0]) / 1e9
        return seconds

    def generated(self):
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("aftd_generated_bytes_total{"):
                    return float(line.split()[1])
        return 0.0

    def stop(self):
        self.process.terminate()
        self.process.wait()


def load(url, *arguments):
    command = ["build/aft", "load", url, "--json", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit("aft load failed")
    return json.loads(out)


def bench(folder, runs):
    done = subprocess.run(["build/aft", "bench", folder, "--json", "--no-limits", "--runs", str(runs)], check=True,
                          capture_output=True, text=True, env={**os.environ, "AFTD_PRECISION": "f32"})
    return json.loads(done.stdout)[f"bytes_per_second_{STREAMS}_streams"]


def round_of(daemon, folder, temperature, seconds, runs):
    cpu, bytes_before = daemon.cpu(), daemon.generated()
    answer = told(load(daemon.url, "--concurrency", STREAMS, "--duration", seconds, "--prompt", "T",
                       "--max-tokens", TEXT_BYTES, "--temperature", temperature))
    made = daemon.generated() - bytes_before
    http, engine = (after - before for after, before in zip(daemon.cpu(), cpu))
    share = answer["client_cpu_share"]
    alone = bench(folder, runs)
    burner = subprocess.Popen([sys.executable, "-c", BURN, str(share)])
    beside = bench(folder, runs)
    burner.kill()
    burner.wait()
    text = answer["generate"]
    rate = text["bytes_per_second"]
    return {"http": rate, "alone": alone, "beside": beside, "http/alone": rate / alone, "http/beside": rate / beside,
            "bytes an event": text["bytes"] / max(1, text["event_gap_ms"]["count"] + text["answered"]),
            "client, us a byte": 1e6 * share / rate, "http threads, us a byte": 1e6 * http / made,
            "engine, us a byte": 1e6 * engine / made,
            "event gap p50, ms": text["event_gap_ms"]["p50"], "event gap p99, ms": text["event_gap_ms"]["p99"],
            "event gap p99/p50": text["event_gap_ms"]["p99"] / text["event_gap_ms"]["p50"],
            "byte gap p99/p50": text["byte_gap_ms"]["p99"] / text["byte_gap_ms"]["p50"]}


def gaps(daemon, temperature, text_bytes, prompts):
    """Largest and median gap of 63 streams of so many bytes, beside `prompts` prompts, none or one."""
    others = load(daemon.url, "--concurrency", STREAMS - 1, "--requests", STREAMS - 1, "--prompt", "T", "--max-tokens",
                  text_bytes, "--temperature", temperature)
    time.sleep(0.3)
    if prompts > 0:
        told(load(daemon.url, "--requests", prompts, "--prompt", "A long prompt. ", "--prompt-bytes", 1000,
                  "--max-tokens", 1))
    answer = told(others)["generate"]
    return answer["event_gap_ms"]["max"], answer["event_gap_ms"]["p50"]


def show(name, values, form):
    print(f"  {name:24} {form.format(statistics.median(values)):>9}   ({form.format(min(values))} to "
          f"{form.format(max(values))})", flush=True)


def measure(name, folder, temperature, beside, options):
    with tempfile.TemporaryDirectory() as parent:
        Path(parent, folder.name).symlink_to(folder.resolve())
        daemon = Daemon(parent)
        try:
            print(f"{name}, {STREAMS} streams, fp32, {options.rounds} rounds: median (lowest to highest)", flush=True)
            rounds = [round_of(daemon, folder, temperature, options.seconds, options.runs)
                      for _ in range(options.rounds)]
            for key in rounds[0]:
                show(key, [r[key] for r in rounds], "{:.0f}" if key in ("http", "alone", "beside") else "{:.3f}")
            pairs = [[gaps(daemon, temperature, beside, prompts) for prompts in (0, 1)] for _ in range(options.rounds)]
            show("largest gap, no prompt", [most / median for (most, median), _ in pairs], "{:.2f}")
            show("largest gap, a prompt", [most / median for _, (most, median) in pairs], "{:.2f}")
            show("of gaps without it", [most / median for (_, median), (most, _) in pairs], "{:.2f}")
        finally:
            daemon.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one aft load (6)")
    parser.add_argument("--runs", type=int, default=9, help="of one aft bench (9)")
    parser.add_argument("--model", choices=("shipped", "l24"), help="this one alone")
    options = parser.parse_args()
    if options.model != "l24":
        measure(SHIPPED.name, SHIPPED, 1.0, TEXT_BYTES, options)
    if options.model != "shipped":
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent, "aft-local-24x256")
            mixers.write_model(folder, "aft-local", 1024, dim=256, depth=24)
            measure(folder.name, folder, 0.01, 110, options)  # sharp: only the likeliest bytes


if __name__ == "__main__":
    main()
