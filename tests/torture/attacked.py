"""What the programs of this folder share: the daemon that they attack, requests to it, sockets that misbehave, and what
is left of them afterwards. The standard library alone."""
import ctypes
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

POLITE, GREEDY = "127.0.0.2", "127.0.0.1"  # two clients, as the daemon counts them
MODEL = "enwik8-aft-local"  # whose context ends, so that texts go on from what was fed ahead
TEXT_ALONE = "--model=tests/data/models/" + MODEL
ENDLESS = {"model": MODEL, "prompt": "x", "max_tokens": 65536, "context_overflow": "shift", "stream": True}
HANG_S = 300  # within which what must come has come: a limit on hangs, never a verdict

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
PICTURE = open("weights/models/cifar10-aft-conv/sample.jpg", "rb").read()


ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("AFTD_")}  # those are settings to a daemon


def do_without_huge_pages():
    """From here on, what is started gets none. How many of them the kernel has to give changes from minute to minute,
    and the resident memory of one that is used in part with it, by tens of megabytes."""
    pr_set_thp_disable = 41
    if ctypes.CDLL(None).prctl(pr_set_thp_disable, 1, 0, 0, 0) != 0:
        print("huge pages cannot be turned off")


def until(what, holds):
    """Wait until holds() is true, and return what it was; give up with what it was for."""
    end = time.monotonic() + HANG_S
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not in {HANG_S} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Daemon:
    """aftd as a child, with its log in a folder of its own. `stderr`: a descriptor in the log's place, and then `path`
    must be given, a Unix socket that it listens on: its port is not known. `within`: what it is to enter first.
    `models`: its models_dir; None: it has the models that ship, and MODEL."""

    def __init__(self, *flags, env=None, stderr=None, path=None, models=None, folder=None, within=None):
        self.folder = folder or tempfile.mkdtemp(prefix="aftd-torture-")
        self.log_path, self.path, self.tls = os.path.join(self.folder, "log"), path, False
        command = [os.environ.get("AFTD_TEST_DAEMON", "build/aftd"), "--models-dir=" + (models or "weights/models"),
                   *[TEXT_ALONE] * (not models), *flags]
        if not any(f.startswith("--listen-port") for f in flags):
            command.append("--listen-port=0")
        if path is not None:
            command.append("--listen-unix=" + path)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log if stderr is None else stderr,
                                            env={**ENVIRONMENT, **(env or {})},
                                            preexec_fn=within.enter if within else None)
        try:
            self.port = until(self.log, self.is_there)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def log(self):
        return open(self.log_path, encoding="utf-8", errors="replace").read()

    def is_there(self):
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}: {self.log()}")
        if self.path is not None:
            try:
                return self.connect().close() is None
            except OSError:
                return False
        found = re.search(r"listening on (https?)://127\.0\.0\.1:(\d+)", self.log())
        self.tls = found is not None and found.group(1) == "https"
        return int(found.group(2)) if found else None

    def admin_port(self):
        return int(re.search(r"administration on http://127\.0\.0\.1:(\d+)", self.log()).group(1))

    def connect(self, source=None, small=False, timeout=HANG_S):
        """A plain socket; `small`: one that takes little before it is read."""
        s = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        try:
            s.settimeout(timeout)
            if small:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            if source and not self.path:
                s.bind((source, 0))
            s.connect(self.path or ("127.0.0.1", self.port))
            if not self.path:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return s
        except BaseException:
            s.close()
            raise

    def ask(self, method, path, body=None, headers=None, source=None, timeout=HANG_S):
        """Status, headers and body of one request on a connection of its own; OSError or HTTPException: none."""
        c = http.client.HTTPConnection("127.0.0.1", timeout=timeout)
        c.sock = self.connect(source, timeout=timeout)
        try:
            if self.tls:
                c.sock = UNCHECKED.wrap_socket(c.sock)
            c.request(method, path, body, headers or {})
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()

    def generate(self, source=None, timeout=HANG_S, **fields):
        """Status and JSON."""
        body = json.dumps({"model": MODEL, "prompt": "The ", "max_tokens": 5, **fields})
        status, _, text = self.ask("POST", "/generate", body, {"Content-Type": "application/json"}, source, timeout)
        return status, json.loads(text)

    def warm(self):
        """Have all threads started, the engine's too."""
        self.generate()
        self.ask("POST", "/classify", PICTURE, {"Content-Type": "image/jpeg"})

    def metrics(self):
        """The sum of each family's series."""
        sums = {}
        for line in self.ask("GET", "/metrics", source=POLITE)[2].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def holds(self):
        """Descriptors, threads, and memory in MB."""
        proc = f"/proc/{self.process.pid}"
        status = open(proc + "/status").read()
        return (len(os.listdir(proc + "/fd")), len(os.listdir(proc + "/task")),
                int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024)

    def cpu_s(self):
        """Processor time that it has taken."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """SIGTERM; the exit code, None if it took too long."""
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            return None

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


WORKING = ("aftd_streams_running", "aftd_streams_parked", "aftd_queue_depth", "aftd_body_bytes", "aftd_answer_bytes",
           "aftd_sessions")


def is_idle(daemon):
    """No connection but the one that asks, and no work."""
    m = daemon.metrics()
    return m["aftd_connections"] == 1 and not any(m[name] for name in WORKING)


def unchecked():
    """TLS with whatever certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


UNCHECKED = unchecked()


def head(path, length, kind="application/json"):
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()


def post(path, body, kind="application/json"):
    """A whole request as bytes; `body`: bytes, or what becomes JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return head(path, len(body), kind) + body


def reset(s):
    """Close so that the other side sees a reset."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def png(width, height):
    """A picture of one colour, which takes kilobytes and unpacks to many megabytes."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = zlib.compress((b"\0" + b"\x80" * width) * height, 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", rows) + chunk(b"IEND", b""))


class Threads:
    """Functions that are called again and again, each by a thread, until stop(); what they raise is kept, but for
    connections that were refused or cut where `cut` says that this may be."""

    def __init__(self, functions, cut=False):
        self.over, self.failures = False, []
        self.threads = [threading.Thread(target=self.run, args=(f, cut), daemon=True) for f in functions]
        for t in self.threads:
            t.start()

    def run(self, function, cut):
        while not self.over:
            try:
                function()
            except (OSError, http.client.HTTPException) as e:
                if not cut:
                    self.failures.append(repr(e))
                time.sleep(0.01)
            except Exception as e:
                self.failures.append(repr(e))
                return

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join(HANG_S)
            if t.is_alive():
                self.failures.append("a request hangs")
        return self.failures


def essence(body):
    """What two answers to the same question have in common."""
    try:
        said = json.loads(body)
    except ValueError:
        return body
    return {k: v for k, v in said.items() if k not in ("timings", "usage", "id", "created", "expires_in_s")}


def question(path, body, kind="application/json"):
    return "POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), {"Content-Type": kind}


# One of each kind of work, each with one right answer.
QUESTIONS = [
    question("/generate", {"model": MODEL, "prompt": "The history of ", "max_tokens": 40, "temperature": 0, "seed": 1}),
    question("/generate", {"model": MODEL, "prompt": "Once", "max_tokens": 20, "seed": 7, "n": 8}),
    question("/classify", PICTURE, "image/jpeg"),
    question("/classify", png(1500, 1000), "image/png"),
    question("/score", {"model": MODEL, "text": "The history of Rome " * 10}),
    question("/v1/compress", b"[[Rome]] is a city. " * 50, "application/octet-stream"),
    question("/complete?seed=3&n=2&rows=14", PICTURE, "image/jpeg"),
    question("/explain?side=200", PICTURE, "image/jpeg"),
]


class Questions:
    """Asks the daemon, undisturbed, and then compares: the same question has the same answer."""

    def __init__(self, daemon, questions=QUESTIONS):
        self.questions, self.at, self.counts, self.lock = questions, 0, {}, threading.Lock()
        self.expected = []
        for q in questions:
            status, _, body = daemon.ask(*q)
            assert status == 200, (q[1], status, body)
            self.expected.append(essence(body))

    def ask(self, daemon, refusals=()):
        """The next question; what is answered otherwise than with 200 must be among `refusals`."""
        with self.lock:
            i = self.at = (self.at + 1) % len(self.questions)
        status, _, body = daemon.ask(*self.questions[i])
        with self.lock:
            self.counts[status] = self.counts.get(status, 0) + 1
        if status == 200:
            if essence(body) != self.expected[i]:
                raise AssertionError(f"{self.questions[i][1]}: a wrong answer: {body[:300]}")
        elif status not in refusals:
            raise AssertionError(f"{self.questions[i][1]}: {status}: {body[:300]}")


class Report:
    """Lines as they come, and whether everything was as it should be."""

    def __init__(self):
        self.wrong = []

    def check(self, right, what):
        if not right:
            self.wrong.append(what)
            print("WRONG: " + what, flush=True)
        return right

    def end(self):
        sys.exit(1 if self.wrong else 0)
