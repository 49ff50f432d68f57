#!/usr/bin/env python3
"""overload.py [--short]: more requests than can be answered, whether or not earlier ones are (aft load --rate).

Measures what the daemon answers to 64 clients that each wait for their answer, then sends 2 and 10 times as much for
OVERLOAD_SECONDS (600) each. Every answer must be 200, 429 or 503, what is answered with 200 at least PART of the
capacity, and the memory at the end no more than SPARE_MB above what it was after a quarter of the time. Prints a table;
ends non-zero if something was not so. The standard library alone."""
import json
import os
import subprocess
import sys
import threading
import time

from attacked import MODEL, Daemon, Report

SHORT = "--short" in sys.argv
SECONDS = 4 if SHORT else float(os.environ.get("OVERLOAD_SECONDS", "600"))
CAPACITY_S = 3 if SHORT else 30
# The short form is no measurement.
PART = 0.0 if SHORT else 0.9
SPARE_MB = 64.0 if SHORT else 8.0
ALLOWED = {"200", "429", "503"}


def load(daemon, seconds, *options):
    """What aft load has to say of the texts."""
    done = subprocess.run([os.environ.get("AFTD_TEST_CLI", "build/aft"), "load", f"http://127.0.0.1:{daemon.port}",
                           "--generate", "--whole", "--max-tokens=200", "--prompt=The history of ",
                           "--generate-model=" + MODEL, f"--duration={seconds}", "--json", *options],
                          capture_output=True, text=True)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["generate"]


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


def overload(daemon, factor, capacity, report):
    memory = Memory(daemon)
    said = load(daemon, SECONDS, f"--rate={factor * capacity}", "--concurrency=1024", "--warmup=2")
    seen = memory.stop()
    early, late = max(seen[:len(seen) // 4 + 1]), max(seen[len(seen) // 4:])
    others = {f["what"]: f["count"] for f in said["failures"]}
    part = said["answered_per_second"] / capacity
    name = f"{factor} times"
    strange = [f for f in said["failures"] if f["what"].removeprefix("HTTP ") not in ALLOWED]
    report.check(not strange, f"{name}: {strange}")
    report.check(part >= PART, f"{name}: {part:.2f} of the capacity")
    report.check(late <= early + SPARE_MB, f"{name}: from {early:.1f} MB to {late:.1f} MB")
    report.check(daemon.ask("GET", "/healthz")[0] == 200, f"{name}: not well afterwards")
    print(f"| {name} | {said['sent']} | {said['unsent']} | {said['answered']} | {others} | {part:.2f} | "
          f"{said['e2e_ms']['p50']:.0f}, {said['e2e_ms']['p99']:.0f} | {early:.1f} | {late:.1f} |", flush=True)


def main():
    report = Report()
    with Daemon("--log-requests=false") as daemon:
        daemon.warm()
        capacity = load(daemon, CAPACITY_S, "--concurrency=64", "--warmup=2")["answered_per_second"]
        print(f"capacity: {capacity:.1f} texts of 200 bytes a second; {SECONDS:.0f} s each\n\n"
              "| rate | sent | not sent | answered | refused | of the capacity | ms: median, 99th percentile | "
              "MB in the first quarter | later |\n" + "| --- " * 9 + "|", flush=True)
        for factor in (2, 10):
            overload(daemon, factor, capacity, report)
        report.check(daemon.stop() == 0, "it did not end as it should")
    report.end()


if __name__ == "__main__":
    main()
