#!/usr/bin/env python3
"""process.py [--short] [NAME...]: what happens to the process: signals, a clock that jumps, a log that cannot be
written, memory that runs out. Under load throughout; each answer is compared with that of a daemon which was left
alone, and no request may hang. Prints a line for each part (all, or those that are named); ends non-zero if something
was not so. The standard library alone."""
import http.client
import json
import os
import random
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import time

from attacked import (ENDLESS, HANG_S, MODEL, PICTURE, QUESTIONS, TEXT_ALONE, Daemon, Questions, Report, Threads, png,
                      post, question, until)

SHORT = "--short" in sys.argv
KILLS = 3 if SHORT else 100
STORM_S = 1 if SHORT else 30
LIMITS = 4 if SHORT else 60  # of memory
CLIENTS = 4
DRAW = random.Random(1)


def asking(questions, daemon, refusals=()):
    return [lambda: questions.ask(daemon, refusals)] * CLIENTS


def counts(questions):
    return ", ".join(f"{n} of {status}" for status, n in sorted(questions.counts.items()))


# ---- signals ---------------------------------------------------------------------------------------------------------

def term(report):
    """Half of the streams come to their end while it drains; the other half has none, and is told so at the second
    signal."""
    with Daemon("--streams-max=128", "--drain-timeout-ms=600000", "--timeout-ms=600000", TEXT_ALONE,
                models="off") as d:
        streams = [d.connect() for _ in range(100)]
        for i, s in enumerate(streams):
            s.sendall(post("/generate", ENDLESS if i % 2 else {**ENDLESS, "max_tokens": 100}))
        seen = [b"" for _ in streams]
        for i, s in enumerate(streams):
            while b"data:" not in seen[i]:
                seen[i] += s.recv(65536)
        d.signal(signal.SIGTERM)
        left, again = dict(zip(streams, range(len(streams)))), None
        while left:
            ready = select.select(list(left), [], [], HANG_S)[0]
            assert ready, f"{len(left)} streams hang"
            for s in ready:
                piece = s.recv(65536)
                seen[left[s]] += piece
                if not piece:
                    del left[s]
            if len(left) == 50 and again is None:
                d.signal(signal.SIGTERM)
                again = time.monotonic()
        assert again is not None, "none was left for a second signal"
        code = d.process.wait(HANG_S)
        took = time.monotonic() - again
        reasons = [re.findall(rb'"finish_reason":"(\w+)"', text)[-1:] for text in seen]
        report.check(reasons == [[b"length"], [b"cancelled"]] * 50, f"TERM: {reasons}")
        report.check(all(text.endswith(b"0\r\n\r\n") for text in seen), "TERM: an answer has no end")
        report.check(code == 0, f"TERM: ended with {code}")
    print(f"TERM with 100 streams: {reasons.count([b'length'])} came to their end, {reasons.count([b'cancelled'])} "
          f"were told; exit {code}, {took:.1f} s after the second signal", flush=True)


def kill(report):
    """With sockets that are left behind, and a port that has had connections."""
    with Daemon(TEXT_ALONE, models="off") as undisturbed:
        questions = Questions(undisturbed, [q for q in QUESTIONS if MODEL.encode() in q[2]])
    folder = port = None
    slowest, early = 0.0, 0
    flags = [TEXT_ALONE, "--log-requests=false"]
    first = Daemon(*flags, models="off")
    try:
        folder, port = first.folder, first.port
        paths = [os.path.join(folder, name) for name in ("public.sock", "admin.sock")]
        flags += [f"--listen-port={port}", "--listen-unix=" + paths[0], "--admin-unix=" + paths[1]]
        first.stop()
        now = [first]
        threads = Threads([lambda: questions.ask(now[0])] * CLIENTS, cut=True)
        for _ in range(KILLS):
            if DRAW.random() < 0.2:  # while it starts
                now[0].process = subprocess.Popen(now[0].process.args[:2] + flags, stdin=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL)
                early += 1
            else:
                begin = time.monotonic()
                now[0] = Daemon(*flags, models="off", folder=folder)
                assert now[0].ask("GET", "/readyz")[0] == 200
                slowest = max(slowest, time.monotonic() - begin)
            time.sleep(DRAW.uniform(0, 0.4))
            now[0].process.kill()
            now[0].process.wait()
        now[0] = Daemon(*flags, models="off", folder=folder)
        questions.ask(now[0])
        failures = threads.stop()
        report.check(not failures, f"KILL: {failures[:3]}")
        log = now[0].log()
        report.check("error" not in log and "warning" not in log, f"KILL: the next one says {log}")
        report.check(now[0].stop() == 0, "KILL: the last one did not end as it should")
        report.check(not [p for p in paths if os.path.exists(p)], "KILL: a socket is left behind")
        now[0].close()
    finally:
        first.close()
    print(f"KILL {KILLS} times, {early} of them while it started: served again after at most {slowest:.2f} s; "
          f"{counts(questions)}", flush=True)


def hup(report):
    with Daemon("--log-requests=false") as d:
        questions = Questions(d)
        threads, sent, end = Threads(asking(questions, d)), 0, time.monotonic() + STORM_S
        while time.monotonic() < end:
            d.signal(signal.SIGHUP)
            sent += 1
            time.sleep(0.002)
        failures = threads.stop()
        report.check(not failures, f"HUP: {failures[:3]}")
        report.check(d.metrics()["aftd_config_last_reload_successful"] == 1, "HUP: the last reload failed")
        report.check(d.stop() == 0, "HUP: it did not end as it should")
        reloads = d.log().count("reload")
    print(f"HUP {sent} times in {STORM_S} s, {reloads} lines of reloading: {counts(questions)}", flush=True)


# ---- the clock -------------------------------------------------------------------------------------------------------

def clock(report):
    preloaded = os.environ.get("AFTD_TEST_CLOCK_LIBRARY", "build/tests/shifted_clock.so")
    if os.environ.get("AFTD_TEST_DAEMON", "build/aftd") != "build/aftd" and "san/" in os.environ["AFTD_TEST_DAEMON"]:
        print("the clock: skipped, a sanitizer must be preloaded first")
        return
    path = os.path.abspath("build/shifted-clock")
    with open(path, "wb") as f:
        f.write(bytes(8))
    with Daemon("--log-format=json", env={"LD_PRELOAD": os.path.abspath(preloaded), "SHIFTED_CLOCK": path,
                                          "GOMP_SPINCOUNT": "1000"}) as d:
        questions = Questions(d)
        status, _, session = d.ask("POST", "/v1/sessions", b'{"prompt": "x"}')
        assert status == 201, session
        session = json.loads(session)["id"]
        threads = Threads(asking(questions, d))
        shifts = [3600, -3600, 86400 * 3650, -int(time.time()), 3 * 10 ** 9, -1, 0] * (1 if SHORT else 6)
        for shift in shifts:
            with open(path, "r+b") as f:
                f.write(struct.pack("q", shift))
            begin = time.monotonic()
            status, said = d.generate(max_tokens=60000, context_overflow="shift", timeout_ms=300)
            took = time.monotonic() - begin  # 408: before the first byte
            report.check((status == 408 or said.get("finish_reason") == "timeout") and 0.25 < took,
                         f"clock {shift:+}: a deadline of 0.3 s took {took:.2f} s: {said}")
            status, _, body = d.ask("GET", f"/v1/sessions/{session}")
            report.check(status == 200 and json.loads(body)["expires_in_s"] > 3000, f"clock {shift:+}: {body}")
            if not SHORT:
                time.sleep(0.5)
        failures = threads.stop()
        report.check(not failures, f"clock: {failures[:3]}")
        report.check(d.stop() == 0, "clock: it did not end as it should")
        lines = [json.loads(line) for line in d.log().splitlines()]
        years = sorted({int(line["time"][:4]) for line in lines})
        report.check({1970, 2026 + 10} - {y + k for y in years for k in (-1, 0, 1)} == set(), f"clock: {years}")
    os.remove(path)
    print(f"the clock set {len(shifts)} times, to years {years}: {counts(questions)}", flush=True)


# ---- the log ---------------------------------------------------------------------------------------------------------

def unwritable(report, name, stderr, flags, least, drops=True):
    """Nobody takes its lines; it answers, counts those that are lost, and ends."""
    path = os.path.join("/tmp", f"aftd-torture-{os.getpid()}.sock")
    with Daemon("--log-format=json", "--log-level=debug", *flags, stderr=stderr, path=path) as d:
        questions = Questions(d)
        threads = Threads(asking(questions, d) + [lambda: d.ask("GET", "/" + "x" * 200)] * 4)
        lost = "aftd_log_lines_dropped_total"
        until(f"{name}: {least} lines lost", lambda: d.metrics()[lost] >= least)
        failures = threads.stop()
        lines = d.metrics()[lost]
        report.check(not failures, f"{name}: {failures[:3]}")
        begin = time.monotonic()
        code = d.stop()
        took = time.monotonic() - begin
        report.check(code == 0, f"{name}: ended with {code}")
    print(f"{name}: {lines:.0f} lines lost; {counts(questions)}; ended in {took:.1f} s", flush=True)


def disk(report):
    with open("/dev/full", "wb") as full:
        unwritable(report, "the log's disk full", full, [], 20 if SHORT else 5000)


def stalled(report):
    """Of a pipe that nobody reads, and of one whose reader has gone."""
    reader, writer = os.pipe()
    unwritable(report, "standard error stalled", writer, [], 20 if SHORT else 20000)
    os.close(reader)
    unwritable(report, "standard error without a reader", writer, [], 20 if SHORT else 20000)
    os.close(writer)


# ---- memory ----------------------------------------------------------------------------------------------------------

def memory(report):
    """RLIMIT_DATA, set on the running daemon to little more than it has, again and again: what a control group's limit
    would be without the kernel's killing, and unlike RLIMIT_AS it counts what malloc has only reserved once that is
    used. libgomp ends the process where it gets none."""
    ended = held = 0
    large = [question("/classify", png(3000, 2500), "image/png"), question("/explain?side=1500", PICTURE, "image/jpeg")]
    with Daemon("--log-requests=false") as undisturbed:
        questions = Questions(undisturbed, QUESTIONS + large)
    d = None
    try:
        for _ in range(LIMITS):
            if d is None:
                d = Daemon("--log-requests=false")
                d.warm()
            threads = Threads(asking(questions, d, {500, 503}), cut=True)
            time.sleep(DRAW.uniform(0, 0.5))
            size = int(re.search(r"VmData:\s+(\d+)", open(f"/proc/{d.process.pid}/status").read()).group(1)) << 10
            whole = resource.prlimit(d.process.pid, resource.RLIMIT_DATA)
            more = DRAW.choice((0, DRAW.randrange(0, 16 << 20)))
            resource.prlimit(d.process.pid, resource.RLIMIT_DATA, (size + more, whole[1]))
            time.sleep(2)
            resource.prlimit(d.process.pid, resource.RLIMIT_DATA, whole)
            failures = threads.stop()
            report.check(not failures, f"memory: {failures[:3]}")
            if d.process.poll() is not None:
                ended += 1
                report.check("libgomp" in d.log(), f"memory: it ended with {d.process.poll()}: {d.log()[-600:]}")
                d.close()
                d = None
                continue
            held += 1
            Questions(d)  # all are answered again
        if d is not None:
            report.check(d.stop() == 0, "memory: it did not end as it should")
    finally:
        if d is not None:
            d.close()
    print(f"memory limited {LIMITS} times: went on {held} times, ended by libgomp {ended} times; {counts(questions)}",
          flush=True)


PARTS = [term, kill, hup, clock, disk, stalled, memory]


def main():
    report = Report()
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    for part in PARTS:
        if not names or part.__name__ in names:
            try:
                part(report)
            except (AssertionError, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as e:
                report.check(False, f"{part.__name__}: {e!r}")
    report.end()


if __name__ == "__main__":
    main()
