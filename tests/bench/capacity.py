#!/usr/bin/env python3
"""What aft capacity says of 1, 2 and 3 daemons on this machine, beside what they do behind HAProxy.

    tests/bench/capacity.py [--rounds N] [--seconds S] [--cores C]      from the project's root, after make

The standard library alone, and haproxy (make deps-proxies). Each daemon has one compute thread; balancer, client and
daemons share this machine's processors. In each round the processor time is found that a request takes outside of
engines, with answers in one piece: of the daemon's other threads, and of balancer and client together, from /proc. What
an event takes is found in each run, since it is several times as much where a thread has to be woken for each. The
model's costs are measured (aft capacity --json) before the three runs of each number of daemons, as a virtual machine
is faster at some minutes than at others. With these the simulation is told each run of aft load: rate, mix and seed, so
that both have the same requests at the same times. Loads are 40 % and 70 % of what the simulation says that so many
daemons do at most, at random times, and as many clients as keep them busy.

A run in which anything else on the machine had more than --others of a processor is made again, and left out where
others were quiet. Shown are medians over rounds, measured and simulated, and of each round's ratio (and its range).
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from beside import Daemon

MODEL = Path("weights/models/enwik8-aft-local")
TICKS = os.sysconf("SC_CLK_TCK")
PROMPT, TOKENS = 32, 32
LOADS = (0.4, 0.7)
CLIENTS = 24  # of each daemon, to keep it busy
REPLICAS = (1, 2, 3)
TRIES = 2
CONFIG = """
global
    maxconn 2000
defaults
    mode http
    option http-no-delay
    timeout connect 2s
    timeout client 60s
    timeout server 60s
"""


def write_config(path, ports, daemons):
    """A frontend for each number of daemons."""
    with open(path, "w") as out:
        out.write(CONFIG)
        for port, count in zip(ports, REPLICAS):
            out.write(f"listen of-{count}\n    bind 127.0.0.1:{port}\n    balance leastconn\n")
            for i, daemon in enumerate(daemons[:count]):
                out.write(f"    server s{i} {daemon.url.split('//')[1]}\n")


def spent(pid):
    """Processor seconds of a process: of its thread "engine", and of all others."""
    engine = others = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, rest = (task / "stat").read_text().rsplit(")", 1)
        fields = rest.split()
        seconds = (int(fields[11]) + int(fields[12])) / TICKS
        if name.endswith("(engine"):
            engine += seconds
        else:
            others += seconds
    return engine, others


def busy():
    """Processor seconds of the whole machine, and what the hypervisor kept."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / TICKS


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Scene:
    def __init__(self, models, folder):
        self.daemons = [Daemon(models, "build/aftd --threads 1 --pin-threads false") for _ in REPLICAS]
        self.ports = free_ports(len(REPLICAS))
        config = Path(folder, "haproxy.cfg")
        write_config(config, self.ports, self.daemons)
        self.balancer = subprocess.Popen(["haproxy", "-db", "-q", "-f", config])
        time.sleep(0.5)

    def answered(self):
        """Requests so far, those of warm-ups too; each gives so many bytes."""
        return sum(d.done()[1] for d in self.daemons) / TOKENS

    def load(self, replicas, seconds, *arguments):
        """One aft load: what it says, and the processor seconds of engines, daemons' other threads, others beside."""
        pids = [d.process.pid for d in self.daemons]
        answered_before = self.answered()
        before, all_before = [spent(p) for p in pids], busy()
        balancer = sum(spent(self.balancer.pid))
        start, told = time.monotonic(), subprocess.run(
            ["build/aft", "load", f"http://127.0.0.1:{self.ports[replicas - 1]}", "--json", "--duration", str(seconds),
             "--prompt-bytes", str(PROMPT), "--max-tokens", str(TOKENS), *map(str, arguments)],
            stdout=subprocess.PIPE, text=True, check=True).stdout
        took = time.monotonic() - start
        after = [spent(p) for p in pids]
        told = json.loads(told)
        engine, outside = (sum(now[i] - old[i] for now, old in zip(after, before)) for i in (0, 1))
        beside = sum(spent(self.balancer.pid)) - balancer + told["client_cpu_share"] * told["seconds"]
        told["all_answered"] = self.answered() - answered_before
        told["engine_s"], told["outside_s"], told["beside_s"] = engine, outside, beside
        told["others"] = (busy() - all_before - engine - outside - beside) / took
        return told

    def stop(self):
        self.balancer.terminate()
        self.balancer.wait()
        for daemon in self.daemons:
            daemon.stop()


def answered(told):
    if told["generate"]["failed"]:
        sys.exit(f"requests failed: {told['generate']['failures']}")
    return told["generate"]["answered"]


def outside_of(told, request):
    """Microseconds of a request (as found) and of an event of this run, in daemons and beside them, as options."""
    n = told["all_answered"]
    events = (told["generate"]["event_gap_ms"]["count"] / answered(told) + 1.0) * n
    return {"request-us": request["outside_s"], "beside-us": request["beside_s"]} | {
        name: 1e6 * max(0.0, told[what] - 1e-6 * n * request[what]) / events
        for what, name in (("outside_s", "event-us"), ("beside_s", "beside-event-us"))}


def find_request(scene, seconds):
    """Microseconds of a request whose answer comes in one piece."""
    whole = scene.load(1, seconds, "--concurrency", CLIENTS, "--whole")
    return {what: 1e6 * whole[what] / whole["all_answered"] for what in ("outside_s", "beside_s")}


def simulate(costs, outside, cores, replicas, *arguments):
    told = subprocess.run(["build/aft", "capacity", "--costs", costs, "--cores", str(cores), "--per-machine",
                           str(max(REPLICAS)), "--prompt-bytes", str(PROMPT), "--max-tokens", str(TOKENS), "--json",
                           "--replicas", str(replicas), *(f"--{k}={v:.1f}" for k, v in outside.items()),
                           *map(str, arguments)],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(told)["rows"][0]


def run(scene, options, replicas, arguments):
    """The quietest of some runs."""
    best = None
    for _ in range(TRIES):
        told = scene.load(replicas, options.seconds, "--warmup", options.seconds / 9, *arguments)
        if best is None or told["others"] < best["others"]:
            best = told
        if best["others"] <= options.others:
            break
    return best


def figures_of(told, row):
    text = told["generate"]
    answered(told)
    return {"engine, ms a request": (1e3 * told["engine_s"] / told["all_answered"], row["engine_ms"]),
            "answered/s": (text["answered_per_second"], row["per_second"]),
            "first byte p50, ms": (text["ttfb_ms"]["p50"], row["first_ms"]["p50"]),
            "first byte p99, ms": (text["ttfb_ms"]["p99"], row["first_ms"]["p99"]),
            "whole p50, ms": (text["e2e_ms"]["p50"], row["whole_ms"]["p50"]),
            "whole p99, ms": (text["e2e_ms"]["p99"], row["whole_ms"]["p99"])}


def measure_costs(path, cores):
    path.write_text(subprocess.run(
        ["build/aft", "capacity", str(MODEL), "--precision", "f32", "--threads", "1", "--cores", str(cores),
         "--per-machine", str(max(REPLICAS)), "--prompt-bytes", str(PROMPT), "--max-tokens", str(TOKENS), "--rate", "1",
         "--replicas", "1", "--requests", "100", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    told = json.loads(path.read_text())["costs"]
    print("ms of a pass of streams: " + ", ".join(f"{n}: {us / 1e3:.2f}" for n, us in told["step_us"]) +
          "; times as long beside others: " + ", ".join(f"{n}: {x:.2f}" for n, x in told["crowding"]), flush=True)


def run_pair(scene, costs, request, typical, options, replicas, load, seed):
    """One run and its simulation."""
    clients = ["--concurrency", CLIENTS * replicas]
    most = simulate(costs, typical, options.cores, replicas, *clients, "--requests", 5000)["per_second"]
    rate = most * load if load else most
    arguments = ["--rate", rate, "--seed", seed] if load else clients
    told = run(scene, options, replicas, arguments)
    requests = max(100, round(rate * options.seconds * 10 / 9))
    row = simulate(costs, outside_of(told, request), options.cores, replicas, *arguments, "--requests", requests)
    return {"others": told["others"], "rate": rate, "figures": figures_of(told, row)}


def show(cell, rounds, options):
    """Of the runs in which others had little, where there are any."""
    replicas, load = cell
    quiet = [r for r in rounds if r["others"] <= options.others]
    count, all_count = len(quiet), len(rounds)
    rounds = quiet or rounds
    noise, rate = (statistics.median(r[what] for r in rounds) for what in ("others", "rate"))
    what = f"{100 * load:.0f} %, {rate:.0f} requests/s" if load else f"{CLIENTS * replicas} clients"
    print(f"{replicas} on {options.cores} cores, {what}; {count} of {all_count} runs quiet, others had {noise:.2f} of "
          "a processor")
    for name in rounds[0]["figures"]:
        pairs = [r["figures"][name] for r in rounds]
        ratios = [simulated / measured for measured, simulated in pairs]
        print(f"    {name:20} {statistics.median(m for m, _ in pairs):10.1f} measured "
              f"{statistics.median(s for _, s in pairs):10.1f} simulated   {statistics.median(ratios):5.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run (8)")
    parser.add_argument("--others", type=float, default=0.15, help="of a processor, that others may have in a run")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--replicas", type=int, choices=REPLICAS, help="so many alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models").mkdir()
        Path(folder, "models", MODEL.name).symlink_to(MODEL.resolve())
        costs = Path(folder, "costs.json")
        cells = [(n, load) for n in ([options.replicas] if options.replicas else REPLICAS) for load in (*LOADS, None)]
        results = {cell: [] for cell in cells}
        scene = Scene(Path(folder, "models"), folder)
        try:
            for seed in range(options.rounds):
                request = find_request(scene, options.seconds / 2)
                print("us of a request: {outside_s:.0f} in daemons, {beside_s:.0f} beside them".format(**request))
                typical = outside_of(scene.load(1, options.seconds / 2, "--concurrency", CLIENTS), request)
                for cell in cells:
                    if cell[1] == LOADS[0]:
                        measure_costs(costs, options.cores)
                    results[cell].append(run_pair(scene, costs, request, typical, options, *cell, seed))
                for cell in cells:
                    show(cell, results[cell], options)
        finally:
            scene.stop()


if __name__ == "__main__":
    main()
