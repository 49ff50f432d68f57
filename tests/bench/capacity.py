#!/usr/bin/env python3
"""What aft capacity says of 1, 2 and 3 daemons on this machine, beside what they do behind HAProxy.

    tests/bench/capacity.py [--rounds N] [--seconds S] [--cores C]     from the project's root, after make

The standard library alone, and haproxy (make deps-proxies). Each daemon has one compute thread; balancer, client and
daemons share this machine's processors. Loads are requests at random times with which the simulation has 30 % and 60 %
of the cores at work (but 60 % of what it answers at most, if that is less), and as many clients as keep daemons busy.

The model's costs are measured (aft capacity --json) before the three runs of each number of daemons. Before each run
the processor time is found that a request takes outside of engines, with the same load and answers in one piece: of the
daemons' other threads, and of balancer and client together. What an event takes is found in the run itself, since it is
several times as much where a thread has to be woken for each. With these the simulation is told each run of aft load:
rate, mix and seed, so that both have the same requests at the same times.

It is simulated twice: with the costs of before, and with those costs times a factor with which engines take what they
took in this run for a pass of as many streams. A virtual machine is half as fast again at some minutes than at others;
the second says what the simulation is worth where its costs are right.

A run in which anything else on the machine had more than --others of a processor is made again, and left out where
others were quiet. Shown are medians over rounds: measured, and for either simulation its figure, and of each round's
ratio the median (and its range).
"""
import argparse
import json
import os
import resource
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
LOADS = (0.3, 0.6)  # of the cores,
MOST = 0.6          # and no more of what is answered at most: one daemon has no use for two cores
FIGURES = ("engine, ms a request", "of the cores, %", "answered/s", "first byte p50, ms", "first byte p99, ms",
           "whole p50, ms", "whole p99, ms")
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
        seconds = 1e-9 * int((task / "schedstat").read_text().split()[0])
        if (task / "comm").read_text().strip().endswith("engine"):
            engine += seconds
        else:
            others += seconds
    return engine, others


def busy():
    """Processor seconds of the whole machine, and what the hypervisor kept."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / TICKS


def children():
    """Processor seconds of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Scene:
    def __init__(self, models, folder, precision):
        self.daemons = [Daemon(models, "build/aftd --threads 1 --pin-threads false", precision) for _ in REPLICAS]
        self.ports = free_ports(len(REPLICAS))
        config = Path(folder, "haproxy.cfg")
        write_config(config, self.ports, self.daemons)
        self.balancer = subprocess.Popen(["haproxy", "-db", "-q", "-f", config])
        time.sleep(0.5)

    def done(self):
        """Requests so far, those of warm-ups too, as each gives so many bytes; passes, and streams in them together."""
        bytes_, passes, streams = map(sum, zip(*(d.counters("aftd_generated_bytes_total", "aftd_batch_size_count",
                                                            "aftd_batch_size_sum") for d in self.daemons)))
        return bytes_ / TOKENS, passes, streams

    def load(self, replicas, seconds, *arguments):
        """One aft load: what it says, and the processor seconds of engines, daemons' other threads, others beside."""
        pids = [d.process.pid for d in self.daemons]
        done_before = self.done()
        before, all_before = [spent(p) for p in pids], busy()
        balancer, client = sum(spent(self.balancer.pid)), children()
        start, told = time.monotonic(), subprocess.run(
            ["build/aft", "load", f"http://127.0.0.1:{self.ports[replicas - 1]}", "--json", "--duration", str(seconds),
             "--prompt-bytes", str(PROMPT), "--max-tokens", str(TOKENS), *map(str, arguments)],
            stdout=subprocess.PIPE, text=True, check=True).stdout
        took = time.monotonic() - start
        after = [spent(p) for p in pids]
        told = json.loads(told)
        engine, outside = (sum(now[i] - old[i] for now, old in zip(after, before)) for i in (0, 1))
        beside = sum(spent(self.balancer.pid)) - balancer + children() - client
        told["all_answered"], passes, streams = (now - old for now, old in zip(self.done(), done_before))
        told["pass_ms"], told["pass_size"] = 1e3 * engine / passes, streams / passes
        told["engine_s"], told["outside_s"], told["beside_s"] = engine, outside, beside
        told["took"] = took
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


def find_request(scene, seconds, replicas, *load):
    """Microseconds of a request whose answer comes in one piece."""
    whole = scene.load(replicas, seconds, *load, "--no-stream")
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


def figures_of(told, before, row, cores):
    """What was measured, simulated with the costs of before, and with those of the run."""
    text = told["generate"]
    answered(told)
    share = (told["engine_s"] + told["outside_s"] + told["beside_s"]) / told["took"] / cores
    measured = (1e3 * told["engine_s"] / told["all_answered"], 100 * share, text["answered_per_second"],
                text["ttfb_ms"]["p50"], text["ttfb_ms"]["p99"], text["e2e_ms"]["p50"], text["e2e_ms"]["p99"])
    simulated = ((r["engine_ms"], 100 * r["core_share"], r["per_second"], r["first_ms"]["p50"], r["first_ms"]["p99"],
                  r["whole_ms"]["p50"], r["whole_ms"]["p99"]) for r in (before, row))
    return dict(zip(FIGURES, zip(measured, *simulated)))


def measure_costs(path, cores, precision):
    path.write_text(subprocess.run(
        ["build/aft", "capacity", str(MODEL), "--precision", precision, "--threads", "1", "--cores", str(cores),
         "--per-machine", str(max(REPLICAS)), "--prompt-bytes", str(PROMPT), "--max-tokens", str(TOKENS), "--rate", "1",
         "--replicas", "1", "--requests", "100", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    told = json.loads(path.read_text())["costs"]
    print("ms of a pass of streams: " + ", ".join(f"{n}: {us / 1e3:.2f}" for n, us in told["step_us"]) +
          "; times as long beside others: " + ", ".join(f"{n}: {x:.2f}" for n, x in told["crowding"]), flush=True)


def rate_of(share, most, simulated):
    """Requests a second with which the simulation has that share of the cores at work."""
    low, high = 0.0, most
    for _ in range(12):
        rate = (low + high) / 2
        low, high = (rate, high) if simulated("--rate", rate, "--requests", 3000)["core_share"] < share else (low, rate)
    return low


def at(points, count):
    """What a measured curve has there."""
    end = next((i for i, point in enumerate(points) if 0 < i and count <= point[0]), len(points) - 1)
    (low, us), (high, more_us) = points[end - 1:end + 1]
    return us + (more_us - us) * (count - low) / (high - low)


def at_the_speed_of(costs, told, simulated):
    """Writes costs with which engines take what they took in this run for a pass of as many streams, and simulates it.

    Not for a request: where requests wait longer than in the simulation a pass has more of them, and costs less for
    each. The simulation's passes have other numbers of streams, so that their time is taken to those measured along the
    curve of a byte of each, with each request's prompt spread over its passes."""
    before, scale = json.loads(costs.read_text()), 1.0
    step, prompt = before["costs"]["step_us"], at(before["costs"]["prompt_us"], PROMPT) / TOKENS
    run_costs = costs.with_name("run.json")
    for _ in range(4):
        known = dict(before["costs"], idle_us=scale * before["costs"]["idle_us"])
        for name in ("step_us", "prompt_us"):
            known[name] = [[n, scale * us] for n, us in known[name]]
        run_costs.write_text(json.dumps({"costs": known}))
        row = simulated(run_costs)
        there, here = (at(step, size) + size * prompt for size in (told["pass_size"], row["pass_size"]))
        scale *= told["pass_ms"] / (row["pass_ms"] * there / here)
    return row


def run_pair(scene, costs, typical, options, replicas, load, seed):
    """One run and its simulations: with the costs of before, and with those at which engines were as fast as in it."""
    def simulated(costs, outside, *arguments):
        return simulate(costs, outside, options.cores, replicas, *arguments)

    clients = ["--concurrency", CLIENTS * replicas]
    rate = simulated(costs, typical, *clients, "--requests", 5000)["per_second"]
    if load:
        rate = rate_of(load, MOST * rate, lambda *arguments: simulated(costs, typical, *arguments))
    arguments = ["--rate", rate, "--seed", seed] if load else clients
    request = find_request(scene, options.seconds / 3, replicas, *arguments)
    told = run(scene, options, replicas, arguments)
    arguments += ["--requests", max(100, round(rate * options.seconds * 10 / 9))]
    outside = outside_of(told, request)
    before = simulated(costs, outside, *arguments)
    at_its_speed = at_the_speed_of(costs, told, lambda costs: simulated(costs, outside, *arguments))
    return {"others": told["others"], "rate": rate, "figures": figures_of(told, before, at_its_speed, options.cores)}


def show(cell, rounds, options):
    """Of the runs in which others had little, where there are any."""
    replicas, load = cell
    quiet = [r for r in rounds if r["others"] <= options.others]
    count, all_count = len(quiet), len(rounds)
    rounds = quiet or rounds
    noise, rate = (statistics.median(r[what] for r in rounds) for what in ("others", "rate"))
    what = f"{100 * load:.0f} % of the cores, {rate:.0f} requests/s" if load else f"{CLIENTS * replicas} clients"
    print(f"{replicas} on {options.cores} cores, {what}; {count} of {all_count} runs quiet, others had {noise:.2f} of "
          "a processor")
    for name in rounds[0]["figures"]:
        runs = [r["figures"][name] for r in rounds]
        said = ""
        for i in (1, 2):
            ratios = [run[i] / run[0] for run in runs]
            said += (f"{statistics.median(run[i] for run in runs):10.1f} {statistics.median(ratios):6.2f} "
                     f"({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"    {name:20} {statistics.median(run[0] for run in runs):10.1f}{said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (5)")
    parser.add_argument("--others", type=float, default=0.15, help="of a processor, that others may have in a run")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--replicas", type=int, choices=REPLICAS, help="so many alone")
    parser.add_argument("--precision", choices=("f32", "bf16", "int8"), default="int8")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models").mkdir()
        Path(folder, "models", MODEL.name).symlink_to(MODEL.resolve())
        costs = Path(folder, "costs.json")
        cells = [(n, load) for n in ([options.replicas] if options.replicas else REPLICAS) for load in (*LOADS, None)]
        results = {cell: [] for cell in cells}
        scene = Scene(Path(folder, "models"), folder, options.precision)
        try:
            busy_with = ["--concurrency", CLIENTS]
            for seed in range(options.rounds):
                request = find_request(scene, options.seconds / 3, 1, *busy_with)
                typical = outside_of(scene.load(1, options.seconds / 3, *busy_with), request)
                print("us of a request: {request-us:.0f} in daemons, {beside-us:.0f} beside them; of an event: "
                      "{event-us:.0f} and {beside-event-us:.0f}".format(**typical))
                for cell in cells:
                    if cell[1] == LOADS[0]:
                        measure_costs(costs, options.cores, options.precision)
                    results[cell].append(run_pair(scene, costs, typical, options, *cell, seed))
                for cell in cells:
                    show(cell, results[cell], options)
        finally:
            scene.stop()


if __name__ == "__main__":
    main()
