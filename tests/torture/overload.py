#!/usr/bin/env python3
"""overload.py [--short]: more requests than can be answered, whether or not earlier ones are (aft load --rate).

Measures what the daemon answers to 64 clients that each wait for their answer, then sends 2 and 10 times as much for
OVERLOAD_SECONDS (600) each, and measures again after each. Every answer must be 200, 429 or 503; what is answered with
200 at least PART of the capacity, the mean of before and after, but for what refusing may take, REFUSAL_US of a
processor for each: the faster the machine, the more there are; the memory at the end no more than SPARE_MB above what
it was after a quarter of the time. PART is less than all, since the texts of clients that wait begin together, and
those of others one by one, at a step of their own for each prompt. The daemon has the first half of the processors to
itself, as who sends that much needs some too. A machine that does something else as well gives the daemon more of its
processors at one time than at another, and fails this; the table tells the part of the answers for each second of
processor time, too, which does not depend on that. Ends non-zero if something was not so. Standard library alone."""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from attacked import MODEL, Daemon, Report

SHORT = "--short" in sys.argv
SECONDS = 4 if SHORT else float(os.environ.get("OVERLOAD_SECONDS", "600"))
CAPACITY_S = 3 if SHORT else 30
BYTES = 10 if SHORT else 200  # of each answer
CLOSED = ("--concurrency=64",)
WARM_S = 2
RATE_LEAST = 5.0  # the short form is for the slowest machine too
# The short form is no measurement.
PART = 0.0 if SHORT else 0.85
REFUSAL_US = 60.0  # to take a request from its socket, to read it, and to answer 503
SPARE_MB = 64.0 if SHORT else 8.0
ALLOWED = {"200", "429", "503"}


def load(daemon, seconds, *options):
    """What aft load has to say of the texts."""
    done = subprocess.run([os.environ.get("AFTD_TEST_CLI", "build/aft"), "load", f"http://127.0.0.1:{daemon.port}",
                           "--no-stream", f"--max-tokens={BYTES}", "--prompt=The history of ",
                           "--model=" + MODEL, f"--duration={seconds}", "--json", *options],
                          capture_output=True, text=True)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


class Memory:
    """What the daemon holds, in MB, every half second."""

    def __init__(self, daemon):
        self.seen, self.over, self.daemon = [], False, daemon
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over:
            self.seen.append(self.daemon.holds()[2])
            time.sleep(0.5)

    def stop(self):
        self.over = True
        self.thread.join()
        return self.seen


def rates(daemon, seconds, *options):
    """What aft load says, and the answers a second, by the clock and by the processor time that the daemon got."""
    said, busy_s, over = [], 0.0, threading.Event()

    def run():
        said.append(load(daemon, seconds, f"--warmup={WARM_S}", *options))
        over.set()
    thread = threading.Thread(target=run)
    thread.start()
    over.wait(WARM_S)
    begin, begin_cpu = time.monotonic(), daemon.cpu_s()
    while not over.wait(0.1) and time.monotonic() - begin < seconds:  # it goes on for what was begun
        busy_s = (daemon.cpu_s() - begin_cpu) / (time.monotonic() - begin)
    thread.join()
    a_second = max(said[0]["answered_per_second"], RATE_LEAST)
    return said[0], a_second, a_second / max(busy_s, 0.01)


def overload(daemon, factor, before, processors, report):
    """Returns the capacity afterwards."""
    memory = Memory(daemon)
    said, *during = rates(daemon, SECONDS, f"--rate={factor * before[0]}", "--concurrency=1024")
    seen = memory.stop()
    after = rates(daemon, CAPACITY_S, *CLOSED)[1:]
    early, late = max(seen[:len(seen) // 4 + 1]), max(seen[len(seen) // 4:])
    others = {f["what"]: f["count"] for f in said["failures"]}
    parts = [d / statistics.mean((b, a)) for d, b, a in zip(during, before, after)]
    name = f"{factor} times"
    strange = [f for f in said["failures"] if f["what"].removeprefix("HTTP ") not in ALLOWED]
    report.check(not strange, f"{name}: {strange}")
    report.check(said["answered"] > 0, f"{name}: nothing was answered")
    refusing = sum(others.values()) / SECONDS * REFUSAL_US / 1e6 / processors
    report.check(parts[0] + refusing >= PART, f"{name}: {parts[0]:.2f} of the capacity, {parts[1]:.2f} for its "
                 f"processor time, where refusing may take {refusing:.2f}")
    report.check(late <= early + SPARE_MB, f"{name}: from {early:.1f} MB to {late:.1f} MB")
    report.check(daemon.ask("GET", "/healthz")[0] == 200, f"{name}: not well afterwards")
    times = said["e2e_ms"]
    print(f"| {name} | {said['sent']} | {said['unsent']} | {said['answered']} | {others} | {before[0]:.1f}, "
          f"{after[0]:.1f} | {parts[0]:.2f}, {parts[1]:.2f} | {times['p50'] or 0:.0f}, {times['p99'] or 0:.0f} | "
          f"{early:.1f} | {late:.1f} |", flush=True)
    return after


def main():
    report = Report()
    processors = sorted(os.sched_getaffinity(0))
    half = (len(processors) + 1) // 2
    os.sched_setaffinity(0, processors[:half])
    with Daemon("--log-requests=false") as daemon:
        os.sched_setaffinity(0, processors[half:] or processors)
        daemon.warm()
        print(f"texts of {BYTES} bytes, {SECONDS:.0f} s each\n\n"
              "| rate | sent | not sent | answered | refused | capacity before and after, a second | "
              "of it, by the clock and by processor time | ms: median, 99th percentile | MB in the first quarter | "
              "later |\n" + "| --- " * 10 + "|", flush=True)
        capacity = rates(daemon, CAPACITY_S, *CLOSED)[1:]
        for factor in (2, 10):
            capacity = overload(daemon, factor, capacity, half, report)
        report.check(daemon.stop() == 0, "it did not end as it should")
    report.end()


if __name__ == "__main__":
    main()
