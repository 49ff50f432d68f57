#!/usr/bin/env python3
"""soak.py [--short]: everything at once for SOAK_SECONDS (3600): texts and pictures of each kind, streams of which some
are left, sessions that are made, written in, forked and forgotten, connections that are kept and that are not, scrapes,
and every few seconds a reload of the configuration or of a model. Answers are compared with those of the beginning.

After a fifth of the time, but at most 10 minutes, the daemon must hold what it needs: between the quarter of the rest
that comes then and the last one its resident memory may grow by MOST, and descriptors and threads, looked at while
nothing is asked, must be the same. Pictures and reloads take tens of megabytes for a moment; so of what is seen each
second the least of each minute counts, and of these the median. Prints a line every minute; ends non-zero if something
was not so. The standard library alone."""
import http.client
import json
import os
import random
import signal
import statistics
import sys
import threading
import time

from attacked import ENDLESS, MODEL, Daemon, Questions, Report, Threads, do_without_huge_pages, is_idle, until

SHORT = "--short" in sys.argv
SECONDS = 6 if SHORT else float(os.environ.get("SOAK_SECONDS", "3600"))
PAUSE_S = float(os.environ.get("SOAK_PAUSE", "0.05"))  # of each client, so that the machine is not full
MOST = 1.0 if SHORT else 0.01
RELOAD_S = 1.0 if SHORT else 5.0


class Mix:
    """What the clients do. One that keeps its connection has one for each thread."""

    def __init__(self, daemon):
        self.daemon, self.questions, self.mine = daemon, Questions(daemon), threading.local()
        self.draw, self.counts = random.Random(1), {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def ask(self):
        self.questions.ask(self.daemon)
        self.count("answers")
        time.sleep(PAUSE_S)

    def stream(self):
        fields = {**ENDLESS, "max_tokens": self.draw.randrange(1, 400), "timeout_ms": 60000}
        c = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        c.request("POST", "/generate", json.dumps(fields), {"Content-Type": "application/json"})
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        if self.draw.random() < 0.3:
            answer.read(200)
            self.count("streams left")
        else:
            assert b'"finish_reason":"length"' in answer.read()
            self.count("streams")
        c.close()
        time.sleep(PAUSE_S)

    def kept(self):
        if not hasattr(self.mine, "connection"):
            self.mine.connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        c = self.mine.connection
        for path in ("/healthz", "/metrics", "/v1/models", "/openapi.json", "/nowhere", "/"):
            c.request("GET", path)
            answer = c.getresponse()
            assert answer.status == (404 if path == "/nowhere" else 200), (path, answer.status)
            answer.read()
            self.count("scrapes and pages")
        time.sleep(10 * PAUSE_S)

    def call(self, method, path, body=None, expected=200):
        status, _, said = self.daemon.ask(method, path, body)
        assert status == expected, (method, path, status, said)
        return json.loads(said) if said else None

    def session(self):
        one = self.call("POST", "/v1/sessions", json.dumps({"model": MODEL, "prompt": "Once "}).encode(), 201)["id"]
        fields = json.dumps({"session": one, "max_tokens": 30})
        ids = [one] + [s["id"] for s in self.call("POST", f"/v1/sessions/{one}/fork", b'{"n": 3}', 201)["sessions"]]
        self.call("POST", "/generate", fields.encode())
        for i in ids:
            self.call("DELETE", f"/v1/sessions/{i}", expected=204)
        self.count("sessions")
        time.sleep(2 * PAUSE_S)

    def reload(self):
        time.sleep(RELOAD_S)
        if self.draw.random() < 0.5:
            self.daemon.signal(signal.SIGHUP)
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.daemon.admin_port(), timeout=60)
            c.request("POST", "/admin/models/" + self.draw.choice((MODEL, "cifar10-aft-conv")), '{"action": "reload"}',
                      {"Content-Type": "application/json"})
            answer = c.getresponse()
            assert answer.status == 200, answer.read()
            c.close()
        self.count("reloads")


def floor(seen):
    """What it holds between the moments at which it needs more."""
    return statistics.median(min(seen[i:i + 60]) for i in range(0, len(seen), 60))


def at_rest(daemon):
    until("rest", lambda: is_idle(daemon))
    time.sleep(0.5)  # for the connection that asked
    return daemon.holds()[:2]


def main():
    report = Report()
    do_without_huge_pages()
    warm_s = min(SECONDS / 5, 600)
    with Daemon("--log-requests=false", "--admin-address=127.0.0.1", "--admin-port=0") as daemon:
        mix = Mix(daemon)
        clients = [mix.ask, mix.ask, mix.stream, mix.stream, mix.kept, mix.session, mix.reload]
        seen, held, begin, minute = [], None, time.monotonic(), 0
        threads = Threads(clients)
        while time.monotonic() - begin < SECONDS and not threads.failures:
            time.sleep(1)
            passed = time.monotonic() - begin
            if held is None and passed >= warm_s:
                failures = threads.stop()
                report.check(not failures, str(failures[:3]))
                held = at_rest(daemon)
                threads = Threads(clients)
            if held is not None:
                seen.append(daemon.holds()[2])
            if passed >= 60 * minute:
                print(f"{passed:6.0f} s: {daemon.holds()[2]:.1f} MB; {mix.counts}", flush=True)
                minute += 1
        failures = threads.stop()
        report.check(not failures, str(failures[:3]))
        left = at_rest(daemon)
        quarter = max(len(seen) // 4, 1)
        early, late = floor(seen[:quarter]), floor(seen[-quarter:])
        report.check(late <= early * (1 + MOST), f"memory grew from {early:.1f} to {late:.1f} MB")
        report.check(held == left, f"(descriptors, threads) were {held} and are {left}")
        report.check(daemon.stop() == 0, "it did not end as it should")
    print(f"{SECONDS:.0f} s: {mix.counts}; memory {early:.1f} to {late:.1f} MB ({100 * (late / early - 1):+.2f} %); "
          f"{left[0]} descriptors and {left[1]} threads, as after the warm-up", flush=True)
    report.end()


if __name__ == "__main__":
    main()
