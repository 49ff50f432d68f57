#!/usr/bin/env python3
"""What 64 streams through HTTP reach of what they reach in the process, and what a long prompt does to the others.

    tests/bench/serving.py [--rounds N] [--seconds S] [--model local|l24] [--gaps]   in the project's root, after make

The standard library alone. Two models in fp32: AFT-local L6 d192, of tests/data, and L24 d256 with random weights.
Client and daemon share this machine, and so each round measures three things that are all there at once and run in
turns of half a second, the others halted (SIGSTOP): what neighbours on the machine take, they take from all three.

    http      `aft load`, 64 clients in a closed loop, one byte of prompt, texts of 450 bytes
    alone     64 streams in the process (tests/bench/streams.c), nothing beside it
    beside    the same beside a process that takes as much of a processor as `aft load` did, awake as often

Each is bytes over the seconds that it ran. "http/beside" is what serving costs by itself: daemon and streams have the
same left. CPU time is by thread, from /proc/PID/task. A gap is the time between two events of one stream as the client
sees them, of an `aft load` before the turns; the last part adds a prompt of 1,000 bytes to 63 running streams, whose
texts are just long enough to be there while it is fed, and tells the largest gap of any, beside that of a run without
(of L6, whose context is 512, only the last 511 bytes of a prompt are fed), and where 63 texts that began
together go on past three ends of L6's context. No states of prompts are kept, for it is always the same
one. --gaps measures gaps alone.
"""
import argparse
import contextlib
import json
import os
import random
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import mixers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import aftd_daemon

STREAMS = 64
CPUS = len(os.sched_getaffinity(0))
TEXT_BYTES = 450  # of one answer: within the context of both models, and so long that few begin at a time
LONG_BYTES = 1500  # past three ends of L6's context: at 512, and then after every 256
START_SECONDS = 30
LOCAL = Path("tests/data/models/enwik8-aft-local")
TURN_SECONDS = 0.5
BURN = """
import sys, time
share, asleep, busy_until, last = float(sys.argv[1]), float(sys.argv[2]), 0.0, time.monotonic()
while True:
    time.sleep(asleep)
    now = time.monotonic()
    busy_until += share * min(now - last, 0.1)  # halted meanwhile: nothing is made up for
    last = now
    while time.process_time() < busy_until:
        pass
"""


class Daemon(aftd_daemon.Daemon):
    """One model on a port of the kernel's choice."""

    def __init__(self, models, http_threads):
        super().__init__("--models-dir", models, "--precision=f32", "--log-requests=false", "--prefix-cache-mb=0",
                         "--timeout-ms=600000", "--http-threads", http_threads)

    def generated(self):
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("aftd_generated_bytes_total{"):
                    return float(line.split()[1])
        return 0.0

    def stop(self):
        self.process.send_signal(signal.SIGCONT)  # may be halted, where a side did not start
        super().stop()


def load(url, *arguments):
    command = ["build/aft", "load", url, "--json", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit("aft load failed")
    return json.loads(out)


def load_for_ever(url, temperature):
    return ["build/aft", "load", url, "--concurrency", STREAMS, "--duration", 3600, "--prompt", "T", "--max-tokens",
            TEXT_BYTES, "--temperature", temperature]


def cpu(pid):
    """{name: seconds of the threads of that name}."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        seconds[name] = seconds.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


class Side:
    """Processes that run while the others' are halted."""

    def __init__(self, commands, count, others=()):
        environment = {**os.environ, "AFTD_PRECISION": "f32"}
        self.started = [subprocess.Popen(list(map(str, c)), env=environment, stdout=subprocess.DEVNULL)
                        for c in commands]
        self.pids = [p.pid for p in self.started] + list(others)
        self.count, self.seconds = count, 0.0

    def begin(self):
        """Once it has got going."""
        until = time.monotonic() + START_SECONDS
        first = self.count()
        while self.count() < first + 20 * STREAMS:
            time.sleep(0.05)
            if time.monotonic() > until:
                sys.exit("it does not start")
        start = time.monotonic()  # what it does while it is asked counts, and so does the time
        self.first = self.count()
        self.signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start

    def signal(self, number):
        for pid in self.pids:
            os.kill(pid, number)

    def turn(self):
        self.signal(signal.SIGCONT)
        start = time.monotonic()
        time.sleep(TURN_SECONDS)
        self.signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start

    def end(self):
        """Bytes a second."""
        start = time.monotonic()
        self.signal(signal.SIGCONT)
        self.bytes = self.count() - self.first
        self.seconds += time.monotonic() - start
        self.kill()  # now, for it runs beside the others' ends
        return self.bytes / self.seconds

    def kill(self):
        for p in self.started:
            p.kill()
            p.wait()


def streams(folder, burner, parent):
    counter = Path(parent, f"count{len(burner)}")
    counter.write_bytes(bytes(8))
    return Side([["build/tests/bench/streams", folder, counter], *burner],
                lambda: struct.unpack("q", counter.read_bytes())[0])


def in_turns(daemon, folder, temperature, share, wakes, seconds):
    with tempfile.TemporaryDirectory() as parent, contextlib.ExitStack() as ending:
        burner = [sys.executable, "-c", BURN, share, (1.0 - share) / wakes]
        sides = {"http": lambda: Side([load_for_ever(daemon.url, temperature)], daemon.generated, [daemon.process.pid]),
                 "alone": lambda: streams(folder, [], parent), "beside": lambda: streams(folder, [burner], parent)}
        for name, start in sides.items():  # one after the other, for the others are halted by then
            sides[name] = start()
            ending.callback(sides[name].kill)
            sides[name].begin()
        http, beside = sides["http"], sides["beside"]
        watched = [*http.pids, beside.pids[0]]
        before = [cpu(pid) for pid in watched]
        for _ in range(round(seconds / TURN_SECONDS)):
            for side in random.sample(list(sides.values()), len(sides)):
                side.turn()
        client, threads, inside = ({name: value - old.get(name, 0.0) for name, value in cpu(pid).items()}
                                   for pid, old in zip(watched, before))
        rates = {name: side.end() for name, side in sides.items()}
        us = 1e6 / http.bytes
        return rates | {"http/alone": rates["http"] / rates["alone"], "http/beside": rates["http"] / rates["beside"],
                        "client, us a byte": us * sum(client.values()), "http threads, us a byte": us * threads["http"],
                        "engine, us a byte": us * (sum(threads.values()) - threads["http"]),
                        "beside, us a byte": 1e6 / beside.bytes * sum(inside.values()),
                        "idle, http": 1.0 - (sum(client.values()) + sum(threads.values())) / http.seconds / CPUS,
                        "idle, beside": 1.0 - sum(inside.values()) / beside.seconds / CPUS - share / CPUS}


def round_of(daemon, folder, temperature, seconds):
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
    answer = told(load(daemon.url, "--concurrency", STREAMS, "--duration", seconds, "--prompt", "T",
                       "--max-tokens", TEXT_BYTES, "--temperature", temperature))
    wakes = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - start) / seconds
    return in_turns(daemon, folder, temperature, answer["client_cpu_share"], wakes, seconds) | {
            "bytes an event": answer["bytes"] / max(1, answer["event_gap_ms"]["count"] + answer["answered"]),
            "event gap p50, ms": answer["event_gap_ms"]["p50"], "event gap p99, ms": answer["event_gap_ms"]["p99"],
            "event gap p99/p50": answer["event_gap_ms"]["p99"] / answer["event_gap_ms"]["p50"],
            "byte gap p99/p50": answer["byte_gap_ms"]["p99"] / answer["byte_gap_ms"]["p50"]}


def gaps(daemon, temperature, text_bytes, prompts):
    """Largest and median gap of 63 streams of so many bytes, beside `prompts` prompts, none or one."""
    others = load(daemon.url, "--concurrency", STREAMS - 1, "--requests", STREAMS - 1, "--prompt", "T", "--max-tokens",
                  text_bytes, "--temperature", temperature)
    time.sleep(0.3)
    if prompts > 0:
        told(load(daemon.url, "--requests", prompts, "--prompt", "A long prompt. ", "--prompt-bytes", 1000,
                  "--max-tokens", 1))
    answer = told(others)
    return answer["event_gap_ms"]["max"], answer["event_gap_ms"]["p50"]


def show(name, values, form):
    print(f"  {name:24} {form.format(statistics.median(values)):>9}   ({form.format(min(values))} to "
          f"{form.format(max(values))})", flush=True)


def measure(name, folder, temperature, beside, options):
    with tempfile.TemporaryDirectory() as parent:
        Path(parent, folder.name).symlink_to(folder.resolve())
        daemon = Daemon(parent, options.http_threads)
        try:
            print(f"{name}, {STREAMS} streams, fp32, {options.rounds} rounds: median (lowest to highest)", flush=True)
            rounds = [round_of(daemon, folder, temperature, options.seconds)
                      for _ in range(0 if options.gaps else options.rounds)]
            for key in rounds[0] if rounds else ():
                show(key, [r[key] for r in rounds], "{:.0f}" if key in ("http", "alone", "beside") else "{:.3f}")
            pairs = [[gaps(daemon, temperature, beside, prompts) for prompts in (0, 1)] for _ in range(options.rounds)]
            show("largest gap, no prompt", [most / median for (most, median), _ in pairs], "{:.2f}")
            show("largest gap, a prompt", [most / median for _, (most, median) in pairs], "{:.2f}")
            show("of gaps without it", [most / median for (_, median), (most, _) in pairs], "{:.2f}")
            if folder == LOCAL:
                # plain ASCII at 0: a character of three bytes is told when its last one is there
                ends = [gaps(daemon, 0, LONG_BYTES, 0) for _ in range(options.rounds)]
                show("largest gap, three ends", [most / median for most, median in ends], "{:.2f}")
        finally:
            daemon.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each side of a round (8)")
    parser.add_argument("--http-threads", type=int, default=4, help="of the daemon (4, its default)")
    parser.add_argument("--gaps", action="store_true", help="gaps alone")
    parser.add_argument("--model", choices=("local", "l24"), help="this one alone")
    options = parser.parse_args()
    if options.model != "l24":
        measure(LOCAL.name, LOCAL, 1.0, TEXT_BYTES, options)
    if options.model != "local":
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent, "aft-local-24x256")
            mixers.write_model(folder, "aft-local", 1024, dim=256, depth=24)
            measure(folder.name, folder, 0.01, 110, options)  # sharp: only the likeliest bytes


if __name__ == "__main__":
    main()
