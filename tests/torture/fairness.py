#!/usr/bin/env python3
"""fairness.py [SECONDS]: what a polite client waits beside one that takes all it can get.

Starts build/aftd and measures how long each request of five bytes takes that a client sends in turn, first by itself,
then for SECONDS (10) beside each of the attacks below, which come from another address. Prints a table of medians and
99th percentiles; ends non-zero if a request is refused or the 99th percentile is more than MOST times (and SLACK_MS
more than) what it was by itself. The standard library alone."""
import http.client
import json
import sys
import threading
import time

from attacked import ENDLESS, GREEDY, MODEL, POLITE, Daemon, head, png, post

MOST, SLACK_MS = 3.0, 20.0  # a machine with few processors lets a thread wait that long by itself
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0


def measure(daemon, seconds):
    """The polite client's times in ms."""
    times, refused = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        status, _ = daemon.generate(POLITE)
        times.append((time.monotonic() - begin) * 1e3)
        refused += status != 200
        time.sleep(0.02)
    return sorted(times), refused


class Attack:
    """Sockets and threads that are at it until stop()."""

    def __init__(self, daemon):
        self.daemon, self.sockets, self.threads, self.over = daemon, [], [], False

    def send(self, data):
        try:
            s = self.daemon.connect(GREEDY, timeout=5)
            s.sendall(data)
            self.sockets.append(s)
        except OSError:
            pass

    def again_and_again(self, count, path, body, kind="application/json"):
        def run():
            while not self.over:
                try:
                    self.daemon.ask("POST", path, body, {"Content-Type": kind}, GREEDY, 30)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.01)
        self.threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
        for t in self.threads:
            t.start()

    def stop(self):
        self.over = True
        for s in self.sockets:
            s.close()
        for t in self.threads:
            t.join()


def samples(a):
    a.send(post("/generate", {**ENDLESS, "max_tokens": 16384, "n": 64}))


def archive(a):
    text = (b"The [[history]] of the [[Roman Empire]] is one of the most important of all. " * 7000)[:64 * 8192]
    status, _, packed = a.daemon.ask("POST", f"/v1/compress?model={MODEL}", text,
                                     {"Content-Type": "application/octet-stream"}, GREEDY, 120)
    assert status == 200, packed
    a.again_and_again(1, f"/v1/decompress?model={MODEL}", packed, "application/octet-stream")


def streams(a):
    for _ in range(300):
        a.send(post("/generate", ENDLESS))


def pictures(a):
    a.again_and_again(8, "/classify", png(8000, 4000), "image/png")


def drawings(a):
    a.again_and_again(4, "/explain?side=2048", png(256, 256), "image/png")


def uploads(a):
    for _ in range(300):
        a.send(head("/classify", 16000000, "image/jpeg") + b"x" * 60000)


def connections(a):
    for _ in range(4500):
        a.send(b"")


def unread(a):
    for _ in range(200):
        a.send(post("/generate", {**ENDLESS, "n": 2}))


def sessions(a):
    a.again_and_again(4, "/v1/sessions", json.dumps({"model": MODEL, "prompt": "x" * 200}).encode())


ATTACKS = [("64 samples in one request", samples),
           ("an archive of 64 blocks", archive),
           ("300 endless streams", streams),
           ("8 times a picture of 32 megapixels", pictures),
           ("4 times a drawing of 2048 x 2048", drawings),
           ("300 unfinished uploads", uploads),
           ("4,500 idle connections", connections),
           ("200 streams that nobody reads", unread),
           ("sessions as fast as they come", sessions)]


def main():
    fine = True
    print("| beside | median, ms | 99th percentile, ms | worst, ms | requests | refused |\n" + "| --- " * 6 + "|")
    alone = None
    for name, attack in [("nothing", None)] + ATTACKS:
        with Daemon("--log-requests=false", "--timeout-ms=600000") as daemon:
            measure(daemon, 1.0)
            a = Attack(daemon)
            if attack is not None:
                attack(a)
                time.sleep(0.5)
            times, refused = measure(daemon, SECONDS)
            a.stop()
            daemon.stop()
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        alone = p99 if alone is None else alone
        held = refused == 0 and p99 <= max(MOST * alone, alone + SLACK_MS)
        fine = fine and held
        print(f"| {name} | {times[len(times) // 2]:.1f} | {p99:.1f}{'' if held else ' (too much)'} | {times[-1]:.1f} | "
              f"{len(times)} | {refused} |", flush=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
