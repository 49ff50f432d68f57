#!/usr/bin/env python3
"""endless.py [--bytes N] [--parts N] [--model DIR]: one text of N bytes (1,000,000, at most 1,048,576) in one stream,
over HTTP. Prints for each of its parts (20) how long a byte took and how much memory the daemon had in the end, then
what the bytes of its last quarter took beside those of its first: the medians of their parts. The standard library
alone."""
import argparse
import http.client
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import Daemon

JSON = {"Content-Type": "application/json"}
TIMEOUT_MS = 3_600_000


def resident_mb(daemon):
    """Memory of the daemon that is the process's own, in MB."""
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1000


def written(daemon, count):
    """Number of bytes after each event of a text of `count` bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_MS / 1000)
    asked = {"prompt": "The history of ", "max_tokens": count, "seed": 1, "stream": True}
    connection.request("POST", "/generate", json.dumps(asked), JSON)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    done = 0
    for line in answer:
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            done += event.get("tokens", 0) if "text" in event else 0
            yield done
    assert done == count, f"{done:,} of {count:,} bytes came: {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--model", default="weights/models/enwik8-aft-conv")
    args = parser.parse_args()
    daemon = Daemon("--models-dir=off", "--model=" + args.model, f"--timeout-ms={TIMEOUT_MS}",
                    f"--timeout-ms-max={TIMEOUT_MS}")
    try:
        print(next(line.split("info ", 1)[1] for line in daemon.said().splitlines() if "info model " in line) + "\n")
        print("| byte | microseconds a byte | MB |\n| ---: | ---: | ---: |", flush=True)
        costs, before, then = [], 0, None
        for done in written(daemon, args.bytes):
            now = time.monotonic()
            then = then or now  # from the first event on: what comes before it is the prompt
            if done >= args.bytes * (len(costs) + 1) / args.parts and done > before:
                costs.append(1e6 * (now - then) / (done - before))
                print(f"| {done:,} | {costs[-1]:.1f} | {resident_mb(daemon):.1f} |", flush=True)
                before, then = done, now
        few = max(1, len(costs) // 4)
        first, last = (statistics.median(part) for part in (costs[:few], costs[-few:]))
        print(f"\nThe last quarter's bytes took {last / first:.3f} of what the first's took.")
    finally:
        daemon.stop()


if __name__ == "__main__":
    main()
