#!/usr/bin/env python3
"""sessions.py [--streams N] [--requests N] [--runs N] [--sync]: what it costs that sessions are stored. Two daemons, of
which one stores them and one keeps them in memory, each with N clients (64) that continue a session of their own, 256
bytes a request, in turn; both stand at the same places of the same texts. Prints the bytes generated a second of each
run, and the median and the worst ratio of neighbours. The standard library alone."""
import argparse
import http.client
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import Daemon

MODEL = "enwik8-aft-local"
BYTES = 256
JSON = {"Content-Type": "application/json"}


def start(streams, flags):
    return Daemon("--models-dir=off", "--model=tests/data/models/" + MODEL, "--log-requests=false",
                  "--idle-timeout-ms=3600000", f"--streams-max={streams}", f"--sessions-max={4 * streams}",
                  f"--sessions-per-key-max={4 * streams}", "--sessions-memory-max-mb=4096", *flags)


class Client:
    def __init__(self, port, number):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.id = f"bench-{number}"
        self.ask("PUT", "/v1/sessions/" + self.id, {"prompt": "The history of ", "seed": number})

    def ask(self, method, path, fields):
        self.connection.request(method, path, json.dumps(fields), JSON)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), text
        return json.loads(text)

    def run(self, requests):
        for _ in range(requests):
            assert self.ask("POST", "/generate", {"session": self.id, "max_tokens": BYTES})["tokens"] == BYTES


def rate(clients, requests):
    threads = [threading.Thread(target=c.run, args=(requests,)) for c in clients]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(clients) * requests * BYTES / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=16, help="of each client in a run")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--sync", action="store_true", help="sessions_sync: the disk writes each")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="aftd-bench-")
    stored = [f"--sessions-dir={folder}/sessions", f"--sessions-sync={'true' if args.sync else 'false'}"]
    daemons = [start(args.streams, stored), start(args.streams, [])]
    try:
        clients = [[Client(daemon.port, i) for i in range(args.streams)] for daemon in daemons]
        ratios, costs = [], []
        for run in range(args.runs + 1):
            rates, spent = [0, 0], [0, 0]
            for which in (0, 1) if run % 2 else (1, 0):
                spent[which] = -daemons[which].cpu_s()
                rates[which] = rate(clients[which], args.requests)
                spent[which] += daemons[which].cpu_s()
            if run > 0:  # the first is for what stays
                ratios.append(rates[0] / rates[1])
                costs.append(spent[0] / spent[1])
                print(f"stored {rates[0]:8.0f} bytes/s  in memory {rates[1]:8.0f}  ratio {ratios[-1]:.3f}"
                      f"  processor time {costs[-1]:.3f}", flush=True)
        print(f"median ratio {statistics.median(ratios):.3f}, worst {min(ratios):.3f}, of {args.runs} runs; "
              f"of processor time {statistics.median(costs):.3f}")
    finally:
        for daemon in daemons:
            daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
