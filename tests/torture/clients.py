#!/usr/bin/env python3
"""clients.py [--short]: clients that are idle, slow, unfinished, or gone in the midst of something, COUNT of them in
each way, while another client asks for /healthz every 20 ms, each time on a new connection. That must be answered in
LIMIT_MS, and what a server that does nothing took at worst meanwhile, for a machine that has other things to do lets
anybody wait. Those who do nothing must cost next to nothing, and afterwards the daemon must hold nothing of them: no
connection, stream, job, body or answer, and no more descriptors and threads than before. Each attack is made twice:
the second time may leave no more than SPARE_MB beyond what the first has left, as what connections had is given back
32 MB at a time. Prints a table; ends non-zero if something was not so. The standard library alone."""
import multiprocessing
import os
import select
import socket
import subprocess
import sys
import tempfile
import time

from attacked import (ENDLESS, GREEDY, POLITE, UNCHECKED, Daemon, Report, Threads, do_without_huge_pages, head,
                      is_idle, post, reset, until)

SHORT = "--short" in sys.argv
COUNT = 60 if SHORT else 1000
HOLD_S = 0.3 if SHORT else 10.0
# The short form is no measurement.
LIMIT_MS = 100.0
SPARE_MB = 64.0 if SHORT else 36.0
BUSY_MOST = 0.5  # of a processor, while those in RESTING are held; what asks for /healthz takes a part of it
WAVE = 250  # who waits or is answered at a time; the queue has room for 256
STREAMS = 64


# ---- the client that must be served ----------------------------------------------------------------------------------

def serve(listener):
    while True:
        s = listener.accept()[0]
        s.recv(4096)
        s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        s.close()


def look(daemon, bare, end, out):
    """Times in ms of /healthz and of the same by a bare server, in turn, and what was not 200."""
    times, bare_times, refused = [], [], []
    while not end.is_set():
        begin = time.monotonic()
        try:
            status = daemon.ask("GET", "/healthz", source=POLITE)[0]
        except OSError as e:
            status = repr(e)
        times.append(1e3 * (time.monotonic() - begin))
        if status != 200:
            refused.append(status)
        begin = time.monotonic()
        with socket.create_connection(bare) as s:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while s.recv(4096):
                pass
        bare_times.append(1e3 * (time.monotonic() - begin))
        time.sleep(0.02)
    out.send((sorted(times), sorted(bare_times), refused))


class Watch:
    """In processes of their own, whose time the attack does not take."""

    def __init__(self, daemon):
        self.end, (self.result, out) = multiprocessing.Event(), multiprocessing.Pipe(False)
        with socket.create_server((GREEDY, 0)) as listener:
            self.processes = [multiprocessing.Process(target=f, args=a, daemon=True) for f, a in (
                (serve, (listener,)), (look, (daemon, listener.getsockname(), self.end, out)))]
            for p in self.processes:
                p.start()

    def stop(self):
        self.end.set()
        seen = self.result.recv()
        self.processes[0].kill()
        for p in self.processes:
            p.join()
        return seen


# ---- attacks ---------------------------------------------------------------------------------------------------------

def crowd(daemon, data=b"", small=False, count=None):
    """Connections that have sent that; those that are refused or cut meanwhile are none."""
    sockets = []
    for _ in range(count or COUNT):
        try:
            s = daemon.connect(GREEDY, small)
            sockets.append(s)
            s.sendall(data)
        except OSError:
            pass
    return sockets


def hold(sockets, each=lambda s: None):
    """For HOLD_S, with each(socket) once a second."""
    end = time.monotonic() + HOLD_S
    while time.monotonic() < end:
        for s in sockets:
            try:
                each(s)
            except OSError:
                pass
        time.sleep(max(0.0, min(1.0, end - time.monotonic())))


def leave(sockets):
    """Half of them close, half of them reset."""
    for i, s in enumerate(sockets):
        if i % 2:
            reset(s)
        else:
            s.close()


def idle(daemon):
    sockets = crowd(daemon)
    hold(sockets)
    leave(sockets)


def slow_headers(daemon):
    sockets = crowd(daemon, b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    hold(sockets, lambda s: s.sendall(b"x"))
    leave(sockets)


def slow_bodies(daemon):
    sockets = crowd(daemon, head("/generate", 1000) + b'{"prompt": "')
    hold(sockets, lambda s: s.sendall(b"x"))
    leave(sockets)


def slow_readers(daemon):
    sockets = crowd(daemon, post("/generate", ENDLESS), small=True)
    for s in sockets:
        s.setblocking(False)
    hold(sockets, lambda s: s.recv(1))
    leave(sockets)


def gone_connecting(daemon):
    for i in range(COUNT):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", daemon.port))
        leave([s] if i % 2 else [socket.socket(), s])


def gone_in_header(daemon):
    leave(crowd(daemon, b"POST /generate HTTP/1.1\r\nHost: 127."))


def gone_in_body(daemon):
    leave(crowd(daemon, head("/generate", 1000) + b'{"prompt": "'))


def gone_from_queue(daemon):
    """Some are refused, while those before them are still being forgotten."""
    for _ in range(0, COUNT, WAVE):
        sockets = crowd(daemon, post("/generate", ENDLESS), count=STREAMS + min(COUNT, WAVE))
        until("jobs that wait", lambda: daemon.metrics()["aftd_queue_depth"] >= min(COUNT, WAVE) // 2)
        leave(sockets)


def gone_from_stream(daemon):
    for _ in range(0, COUNT, STREAMS):
        sockets = crowd(daemon, post("/generate", ENDLESS), count=STREAMS)
        for s in sockets:
            while b"data:" not in s.recv(4096):
                pass
        leave(sockets)


def gone_from_answer(daemon):
    """Answers of a megabyte, of which a few kilobytes are on their way."""
    for _ in range(0, COUNT, WAVE):
        sockets = crowd(daemon, b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 12, True, min(COUNT, WAVE))
        for s in sockets:
            s.recv(1)
        leave(sockets)


def tls_stalled(daemon):
    """Half of them say nothing, half of them the beginning of a hello."""
    sockets = crowd(daemon, count=COUNT // 2) + crowd(daemon, b"\x16\x03\x01\x02\x00\x01", count=COUNT - COUNT // 2)
    hold(sockets)
    leave(sockets)


def tls_flood(daemon):
    """As many whole handshakes as two threads can begin, each followed by a hello that its client does not wait for."""
    def shake():
        s = UNCHECKED.wrap_socket(daemon.connect(GREEDY))
        s.close()
        left = UNCHECKED.wrap_socket(daemon.connect(GREEDY), do_handshake_on_connect=False)
        left.setblocking(False)
        try:
            left.do_handshake()
        except OSError:  # it wants to read
            select.select([], [left], [], 1)
        reset(left)

    threads = Threads([shake] * 2, cut=True)
    time.sleep(HOLD_S)
    failures = threads.stop()
    assert not failures, failures


PLAIN = [("idle", idle), ("slow headers", slow_headers), ("slow bodies", slow_bodies), ("slow readers", slow_readers),
         ("gone while connecting", gone_connecting), ("gone in a header", gone_in_header),
         ("gone in a body", gone_in_body), ("gone while queued", gone_from_queue),
         ("gone while streaming", gone_from_stream), ("gone while answered", gone_from_answer)]
TLS = [("stalled handshakes", tls_stalled), ("flooding handshakes", tls_flood)]
RESTING = (idle, slow_headers, slow_bodies, tls_stalled)


# ---- what is left ----------------------------------------------------------------------------------------------------

def settle(daemon, before=None, most_mb=None):
    """Wait until it holds nothing more than before; what it holds. Memory is given back every ten seconds at most."""
    def seen():
        return f"{daemon.holds()} where it was {before}, at most {most_mb} MB"

    def is_as_before():
        idle_now, now = is_idle(daemon), daemon.holds()
        return (idle_now and (before is None or (now[0] <= before[0] and now[1] <= before[1])) and
                (most_mb is None or now[2] <= most_mb))
    until(seen, is_as_before)
    time.sleep(0.2)  # for the connection that asked
    return daemon.holds()


def attack(daemon, name, function, report):
    before = settle(daemon)
    try:
        function(daemon)
        once = settle(daemon, before)
        watch = Watch(daemon)
        time.sleep(0.2)
        begin, begin_cpu = time.monotonic(), daemon.cpu_s()
        function(daemon)
        busy = (daemon.cpu_s() - begin_cpu) / (time.monotonic() - begin)
        times, bare, refused = watch.stop()
        left = settle(daemon, before, once[2] + SPARE_MB)
    except AssertionError as e:
        report.check(False, f"{name}: {e}")
        return
    report.check(not refused, f"{name}: /healthz said {refused[:3]}, {len(refused)} times of {len(times)}")
    report.check(SHORT or times[-1] <= LIMIT_MS + bare[-1],
                 f"{name}: /healthz took {times[-1]:.0f} ms, a bare server {bare[-1]:.0f} ms")
    report.check(SHORT or function not in RESTING or busy <= BUSY_MOST, f"{name}: {busy:.2f} of a processor")
    print(f"| {name} | {times[len(times) // 2]:.1f} | {times[int(len(times) * 0.99)]:.1f} | {times[-1]:.1f} | "
          f"{bare[-1]:.1f} | {len(times)} | {busy:.2f} | {once[2] - before[2]:+.1f} | "
          f"{left[2] - before[2]:+.1f} |", flush=True)


def certificate(folder):
    paths = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-out", paths[0], "-keyout", paths[1]], check=True,
                   stderr=subprocess.DEVNULL)
    return [f"--tls-certificate={paths[0]}", f"--tls-key={paths[1]}"]


def main():
    report = Report()
    do_without_huge_pages()
    print(f"{COUNT} clients each; /healthz every 20 ms, in ms; memory in MB\n\n"
          "| clients | median | 99th percentile | worst | of a bare server | asked | processors | "
          "left by the first time | by the second |\n" + "| --- " * 9 + "|", flush=True)
    quiet = ["--log-requests=false", "--timeout-ms=600000"]
    with tempfile.TemporaryDirectory() as folder:
        for flags, attacks in ((quiet, [("none", lambda _: hold([]))] + PLAIN), (quiet + certificate(folder), TLS)):
            with Daemon(*flags) as daemon:
                daemon.warm()
                for name, function in attacks:
                    attack(daemon, name, function, report)
                report.check(daemon.stop() == 0, "it did not end as it should")
    report.end()


if __name__ == "__main__":
    main()
