#!/usr/bin/env python3
"""small.py [--short] [FLAG...]: a daemon with default settings and the shipped models in a control group of 256 MiB,
asked for more than fits: large pictures, unfinished uploads, large JSON, sessions, streams and answers that nobody
reads; each kind by itself, then all at once; in short, all at once only.

Whoever is not cut off must be answered, with what was asked for, with 503, or with what is wrong with it or took too
long; between these the daemon must answer for each model, and the kernel must not have ended it. Tells the most memory
that the group has had. Where no group can be made it says why, and is done. FLAGs are the daemon's. Ends non-zero if
something was not so. The standard library alone."""
import base64
import collections
import json
import os
import random
import sys
import threading
import time

from attacked import MODEL, PICTURE, POLITE, Daemon, Report, head, png, until

SHORT = "--short" in sys.argv
FLAGS = [a for a in sys.argv[1:] if a != "--short"]
LIMIT = 256 << 20
UPLOAD = 15_000_000
ROUNDS, MANY, PAUSE_S, TEXT = (1, 8, 1, 3_000) if SHORT else (5, 64, 6, 262_144)
CLIENTS = [f"127.0.0.{i}" for i in range(2, 10)]
ALLOWED = {200, 201, 400, 408, 413, 415, 422, 429, 503}


class Group:
    """A memory control group of this process's, version 1 or 2."""

    def __init__(self, limit):
        for line in open("/proc/self/cgroup"):
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers == "" and os.path.exists("/sys/fs/cgroup" + path + "/memory.max"):
                files, parent = ("memory.max", "memory.swap.max", "memory.peak"), "/sys/fs/cgroup" + path
            elif "memory" in controllers.split(","):
                files = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes")
                parent = "/sys/fs/cgroup/memory" + path
            else:
                continue
            self.path = os.path.join(parent, f"aftd-small-{os.getpid()}")
            self.peak_path = os.path.join(self.path, files[2])
            os.mkdir(self.path)
            try:
                self.write(files[0], limit)
                if os.path.exists(os.path.join(self.path, files[1])):
                    self.write(files[1], 0 if "swap.max" in files[1] else limit)
            except OSError:
                os.rmdir(self.path)
                raise
            return
        raise OSError("this process is in no group that bounds memory")

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def peak_mb(self):
        try:
            return int(open(self.peak_path).read()) / (1 << 20)
        except OSError:
            return float("nan")

    def remove(self):
        until("the group does not become empty", lambda: not open(self.path + "/cgroup.procs").read())
        os.rmdir(self.path)


class Attack:
    """Requests of many threads, whose statuses are counted; 0: the connection was cut."""

    def __init__(self, daemon):
        self.daemon, self.counts, self.lock, self.threads = daemon, collections.Counter(), threading.Lock(), []

    def count(self, status):
        with self.lock:
            self.counts[status] += 1

    def run(self, function, *args):
        def call():
            try:
                self.count(function(*args))
            except Exception as e:  # cut, or refused while it was being sent
                self.count(0 if isinstance(e, OSError) or "http.client" in type(e).__module__ else repr(e))
        self.threads.append(threading.Thread(target=call, daemon=True))
        self.threads[-1].start()

    def end(self):
        for t in self.threads:
            t.join(300)
            assert not t.is_alive(), "a request has no end"
        return self.counts


def ask(daemon, path, body, kind, source):
    return daemon.ask("POST", path, body, {"Content-Type": kind}, source, timeout=300)[0]


def pictures(attack):
    large, medium = png(5700, 5700), png(1500, 1500)
    for _ in range(3):
        attack.run(ask, attack.daemon, "/classify", large, "image/png", CLIENTS[0])
    for i in range(MANY):
        attack.run(ask, attack.daemon, "/classify", medium, "image/png", CLIENTS[i % 8])
    for i in range(3):
        attack.run(ask, attack.daemon, "/explain?side=1024", PICTURE, "image/jpeg", CLIENTS[i])


def upload(daemon, source):
    """All but the last byte, and after a while that too."""
    with daemon.connect(source, timeout=300) as s:
        s.sendall(head("/classify", UPLOAD, "image/jpeg") + b"\xff\xd8\xff" + bytes(UPLOAD - 4))
        time.sleep(PAUSE_S)
        s.sendall(b"\0")
        said = s.recv(100)
    return int(said.split()[1]) if said else 0


def uploads(attack):
    for i in range(11 + MANY):
        attack.run(upload, attack.daemon, CLIENTS[0 if i < 11 else i % 8])


def large_json(attack):
    noise = base64.b64encode(random.Random(1).randbytes(UPLOAD * 3 // 4 - 1000)).decode()
    bodies = [("/classify", {"images": [noise]}), ("/generate", {"model": MODEL, "prompt": noise, "max_tokens": 1}),
              ("/v1/embeddings", {"model": MODEL, "input": [1] * 200_000}), ("/score", {"text": "x" * TEXT})]
    for i in range(MANY):
        path, body = bodies[i % 4]
        attack.run(ask, attack.daemon, path, json.dumps(body), "application/json", CLIENTS[i % 8])


def sessions(attack):
    for i in range(5 * MANY):
        attack.run(ask, attack.daemon, "/v1/sessions", json.dumps({"model": MODEL, "prompt": "x" * 300}),
                   "application/json", CLIENTS[i % 8])


def unread(attack):
    """Streams and long answers of which nothing is read for a while."""
    endless = {"model": MODEL, "prompt": "x" * 300, "max_tokens": 65536, "context_overflow": "shift", "stream": True}

    def ask_slowly(source, path, body):
        with attack.daemon.connect(source, small=True, timeout=300) as s:
            text = json.dumps(body).encode()
            s.sendall(head(path, len(text)) + text)
            time.sleep(PAUSE_S)
            said = s.recv(100)
        return int(said.split()[1]) if said else 0
    for i in range(2 * MANY):
        attack.run(ask_slowly, CLIENTS[i % 8], "/generate", endless)
        attack.run(ask_slowly, CLIENTS[i % 8], "/score", {"text": "x" * (TEXT // 10)})


ATTACKS = [pictures, uploads, large_json, sessions, unread]


def check_models(daemon, report, after):
    text = json.dumps({"prompt": "The ", "max_tokens": 4})
    for model, path, body, kind in (("enwik8-aft-local", "/generate", text, "application/json"),
                                    ("cifar10-pixels-16", "/complete", PICTURE, "image/jpeg"),
                                    ("cifar10-aft-conv", "/classify", PICTURE, "image/jpeg"),
                                    ("cifar10-sima", "/classify", PICTURE, "image/jpeg")):
        where = path if path == "/generate" else f"{path}?model={model}"
        try:
            until(f"{model} answers", lambda w=where, b=body, k=kind: ask(daemon, w, b, k, POLITE) == 200)
        except Exception as e:
            report.check(False, f"after {after}: {e!r}")


def main():
    report = Report()
    try:
        group = Group(LIMIT)
    except OSError as e:
        print(f"skipped: no control group of {LIMIT >> 20} MiB can be made: {e}")
        return
    try:
        with Daemon(*FLAGS, within=group) as daemon:
            print(next(line for line in daemon.log().splitlines() if " memory: " in line))
            check_models(daemon, report, "the start")
            print(f"{'at the start':14} {daemon.holds()[2]:6.1f} MB resident, the group's most {group.peak_mb():6.1f}")
            for attacks in ([] if SHORT else [[a] for a in ATTACKS]) + [ATTACKS] * ROUNDS:
                name = attacks[0].__name__ if len(attacks) == 1 else "all at once"
                attack, begin = Attack(daemon), time.monotonic()
                for a in attacks:
                    a(attack)
                counts = attack.end()
                if daemon.process.poll() is not None:
                    report.check(False, f"{name}: the daemon ended with {daemon.process.returncode}")
                    break
                check_models(daemon, report, name)
                print(f"{name:14} {daemon.holds()[2]:6.1f} MB resident, the group's most {group.peak_mb():6.1f}, "
                      f"{time.monotonic() - begin:.0f} s; " +
                      ", ".join(f"{status}: {n}" for status, n in sorted(counts.items(), key=str)), flush=True)
                wrong = {s for s in counts if s not in ALLOWED | {0}}
                report.check(not wrong, f"{name}: {wrong}")
            else:
                report.check(daemon.stop() == 0, "it does not end")
    finally:
        group.remove()
    report.end()


main()
