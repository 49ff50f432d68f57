#!/usr/bin/env python3
"""fairness.py [SECONDS]: what a polite client waits beside one that takes all it can get.

Starts build/aftd and measures how long each request of five bytes takes that a client sends in turn, first by itself,
then for SECONDS (10) beside each of the attacks below, which come from another address. Prints a table of medians and
99th percentiles; ends non-zero if a request is refused or the 99th percentile is more than MOST times (and SLACK_MS
more than) what it was by itself. The standard library alone."""
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

MOST, SLACK_MS = 3.0, 20.0  # a machine with few processors lets a thread wait that long by itself
POLITE, GREEDY = "127.0.0.2", "127.0.0.1"
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
MODEL = "enwik8-aft-local"


def start():
    daemon = subprocess.Popen(["build/aftd", "--listen-port=0", "--models-dir=weights/models", "--log-requests=false",
                               "--timeout-ms=600000"], stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
        if found:
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            return daemon, int(found.group(1))
    sys.exit("the daemon did not start")


def ask(port, path, body, source, kind="application/json", timeout=60):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=(source, 0))
    try:
        c.request("POST", path, body, {"Content-Type": kind})
        answer = c.getresponse()
        return answer.status, answer.read()
    finally:
        c.close()


def measure(port, seconds):
    """The polite client's times in ms."""
    body = json.dumps({"model": MODEL, "prompt": "The ", "max_tokens": 5})
    times, refused = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        status, _ = ask(port, "/generate", body, POLITE)
        times.append((time.monotonic() - begin) * 1e3)
        refused += status != 200
        time.sleep(0.02)
    return sorted(times), refused


def png(width, height):
    """A picture of one colour, which takes kilobytes and unpacks to many megabytes."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = zlib.compress((b"\0" + b"\x80" * width) * height, 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", rows) + chunk(b"IEND", b""))


class Attack:
    """Sockets and threads that are at it until stop()."""

    def __init__(self, port):
        self.port, self.sockets, self.threads, self.over = port, [], [], False

    def connect(self, data):
        try:
            s = socket.create_connection(("127.0.0.1", self.port), timeout=5, source_address=(GREEDY, 0))
            s.sendall(data)
            self.sockets.append(s)
        except OSError:
            pass

    def post(self, path, body, kind="application/json", declared=None):
        head = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body) if declared is None else declared}\r\n\r\n")
        self.connect(head.encode() + body)

    def again_and_again(self, count, path, body, kind="application/json"):
        def run():
            while not self.over:
                try:
                    ask(self.port, path, body, GREEDY, kind, 30)
                except OSError:
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


ENDLESS = {"model": MODEL, "prompt": "x", "max_tokens": 16384, "context_overflow": "shift", "stream": True}


def samples(a):
    a.post("/generate", json.dumps({**ENDLESS, "n": 64}).encode())


def archive(a):
    text = (b"The [[history]] of the [[Roman Empire]] is one of the most important of all. " * 7000)[:64 * 8192]
    status, packed = ask(a.port, f"/v1/compress?model={MODEL}", text, GREEDY, "application/octet-stream", 120)
    assert status == 200, packed
    a.again_and_again(1, f"/v1/decompress?model={MODEL}", packed, "application/octet-stream")


def streams(a):
    for _ in range(300):
        a.post("/generate", json.dumps(ENDLESS).encode())


def pictures(a):
    a.again_and_again(8, "/classify", png(8000, 4000), "image/png")


def drawings(a):
    a.again_and_again(4, "/explain?side=2048", png(256, 256), "image/png")


def uploads(a):
    for _ in range(300):
        a.post("/classify", b"x" * 60000, "image/jpeg", 16000000)


def connections(a):
    for _ in range(4500):
        a.connect(b"")


def unread(a):
    for _ in range(200):
        a.post("/generate", json.dumps({**ENDLESS, "n": 2}).encode())


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
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    fine = True
    print("| beside | median, ms | 99th percentile, ms | worst, ms | requests | refused |\n" + "| --- " * 6 + "|")
    alone = None
    for name, attack in [("nothing", None)] + ATTACKS:
        daemon, port = start()
        try:
            measure(port, 1.0)
            a = Attack(port)
            if attack is not None:
                attack(a)
                time.sleep(0.5)
            times, refused = measure(port, SECONDS)
            a.stop()
        finally:
            daemon.terminate()
            daemon.wait(60)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        alone = p99 if alone is None else alone
        held = refused == 0 and p99 <= max(MOST * alone, alone + SLACK_MS)
        fine = fine and held
        print(f"| {name} | {times[len(times) // 2]:.1f} | {p99:.1f}{'' if held else ' (too much)'} | {times[-1]:.1f} | "
              f"{len(times)} | {refused} |", flush=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    main()
