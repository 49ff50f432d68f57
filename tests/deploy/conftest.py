"""A Prometheus that scrapes two daemons under load, for test_figures_live.py. `make test-figures` runs them.

One daemon, "open", has few slots and a short queue and is loaded by `aft load`; the other, "guarded", has TLS, keys and
sessions, and clients that also do what is refused. All files are in a temporary folder and all ports are free ones.
FIGURES_SECONDS is how long the load lasts.
"""
import array
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BUILD = ROOT / "build"
HANG_S = 120  # within which what must come has come: a limit on hangs, never a verdict
SECONDS = float(os.environ.get("FIGURES_SECONDS", "120"))
# Of programs started here. AFTD_* are settings to a daemon; OpenMP's threads, which wait for work, give way soon.
ENVIRONMENT = {"GOMP_SPINCOUNT": "1000", **{k: v for k, v in os.environ.items() if not k.startswith("AFTD_")}}
TEXT, PICTURES, OVERFLOWS = "enwik8-aft-conv", "cifar10-aft-conv", "overflows"


def await_true(what, check):
    end = time.monotonic() + HANG_S
    while not check():
        assert time.monotonic() < end, f"{what} did not come within {HANG_S} s"
        time.sleep(0.1)


class Process:
    """A program whose output goes to a file, ended by its id."""

    def __init__(self, folder, name, arguments):
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=ROOT, env=ENVIRONMENT)

    def said(self, pattern=""):
        assert self.process.poll() is None, self.log.read_text()
        return re.search(pattern, self.log.read_text())

    def stop(self):
        self.process.terminate()
        try:
            assert self.process.wait(HANG_S) == 0, self.log.read_text()
        finally:
            self.process.kill()


# ---- the daemons -----------------------------------------------------------------------------------------------------


def write_overflowing(to):
    """A text model whose numbers after a "z" overflow, which is an internal error: it must show as one."""
    source = ROOT / "tests/data/golden/lm-simple"
    data = bytearray((source / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["tok_embed"]["data_offsets"]
    width = (end - begin) // 256
    row = 8 + size + begin + ord("z") * width
    data[row:row + width] = array.array("f", [3e38, -3e38] * (width // 8)).tobytes()
    to.mkdir()
    (to / "model.safetensors").write_bytes(data)
    shutil.copy(source / "config.json", to)


class Daemon(Process):
    def __init__(self, folder, name, *flags):
        super().__init__(folder, name, [
            os.environ.get("AFTD_TEST_DAEMON", BUILD / "aftd"), "--listen-port=0", "--threads=1", "--http-threads=1",
            *flags])
        await_true("the daemon", lambda: self.said(r"listening on https?://127\.0\.0\.1:\d+"))
        self.url = self.said(r"listening on (https?://127\.0\.0\.1:\d+)")[1]
        self.address = self.url.split("/")[-1]


def make_certificate(folder, days):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", str(days), "-keyout", folder / "key.pem", "-out", folder / "certificate.pem", "-subj", "/CN=aftd",
         "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)


def add_key(folder, name, *flags):
    answer = subprocess.run([BUILD / "aft", "key", "add", name, "--file", folder / "keys.json", *flags], check=True,
                            capture_output=True, text=True)
    return answer.stdout.strip()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="session")
def open_daemon(folder):
    # Without the 1,800 lines a second that its load would make: where the log's thread comes to write nothing for a
    # second, as beside other suites, some would be lost.
    d = Daemon(folder, "open", f"--models-dir={ROOT / 'weights/models'}", "--streams-max=2", "--queue-jobs-max=1",
               "--log-requests=false")
    yield d
    d.stop()


@pytest.fixture(scope="session")
def guarded_daemon(folder):
    models = folder / "models"
    models.mkdir()
    for name in (TEXT, PICTURES):
        shutil.copytree(ROOT / "weights/models" / name, models / name)
    write_overflowing(models / OVERFLOWS)
    make_certificate(folder, 30)
    keys = {"alice": add_key(folder, "alice"), "bob": add_key(folder, "bob", "--rate", "1/s")}
    d = Daemon(folder, "guarded", f"--models-dir={models}", f"--keys-file={folder / 'keys.json'}",
               f"--tls-certificate={folder / 'certificate.pem'}", f"--tls-key={folder / 'key.pem'}")
    d.keys, d.trust = keys, ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    yield d
    d.stop()


# ---- the load --------------------------------------------------------------------------------------------------------


class Clients(threading.Thread):
    """Requests of every kind to the guarded daemon, one after the other, right ones and wrong ones."""

    PICTURE = (ROOT / "tests/data/cifar/cat.jpg").read_bytes()
    STORY = "== Early life ==\nThe [[Alabama River]] was named by '''Aristotle''' in [[1871]]. " * 8

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_, self.stopped, self.failure, self.statuses = daemon, threading.Event(), None, set()
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                                  urllib.request.HTTPSHandler(context=daemon.trust))

    def ask(self, path, body, key="alice"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.daemon_.keys.get(key, key)}",
                   "Content-Type": "image/jpeg" if body is self.PICTURE else "application/json"}
        try:
            with self.opener.open(urllib.request.Request(self.daemon_.url + path, data, headers)) as answer:
                text, status = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            text, status = error.read(), error.code
        self.statuses.add(status)
        return status, text

    def leave(self):
        """Ask for a long text, and go when it begins."""
        host, port = self.daemon_.address.split(":")
        with socket.create_connection((host, int(port))) as plain:
            with self.daemon_.trust.wrap_socket(plain, server_hostname=host) as s:
                body = json.dumps({"model": TEXT, "prompt": "x", "max_tokens": 65000, "context_overflow": "shift",
                                   "stream": True}).encode()
                s.sendall("POST /generate HTTP/1.1\r\nHost: localhost\r\n"
                          f"Authorization: Bearer {self.daemon_.keys['alice']}\r\n"
                          f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                s.recv(4096)

    def round(self):
        text = {"model": TEXT, "prompt": self.STORY, "max_tokens": 40}
        assert self.ask("/generate", text)[0] == 200
        assert self.ask("/v1/sessions", {"model": TEXT, "prompt": "x"})[0] in (200, 201, 429, 503)  # or no room
        assert self.ask("/v1/completions", text)[0] == 200
        assert self.ask("/score", {"model": TEXT, "text": "The "})[0] == 200
        assert self.ask("/classify?model=" + PICTURES, self.PICTURE)[0] == 200
        assert self.ask("/explain?model=" + PICTURES, self.PICTURE)[0] == 200
        endless = {**text, "max_tokens": 65000, "context_overflow": "shift"}
        assert self.ask("/generate", {**endless, "timeout_ms": 100})[0] in (200, 408)
        assert self.ask("/generate", {"model": OVERFLOWS, "prompt": "z"})[0] == 500
        assert self.ask("/generate", {"model": "none"})[0] == 404
        assert self.ask("/generate", b"{")[0] == 400
        assert self.ask("/generate", text, key="nobody's")[0] == 401
        for _ in range(3):  # faster than his rate
            assert self.ask("/score", {"model": TEXT, "text": "The "}, key="bob")[0] in (200, 429)
        self.leave()

    def run(self):
        try:
            while not self.stopped.is_set():
                self.round()
        except Exception as error:  # for the test to tell
            self.failure = error

    def end(self):
        self.stopped.set()
        self.join(HANG_S)
        assert self.failure is None, self.failure


def aft_load(folder, daemon, name, *flags):
    return Process(folder, name, [BUILD / "aft", "load", daemon.url, f"--duration={SECONDS}", *flags])


# ---- Prometheus ------------------------------------------------------------------------------------------------------


class Prometheus(Process):
    def __init__(self, folder, targets, ca_file):
        config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "2s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
        config["scrape_configs"][0].update({
            "tls_config": {"ca_file": str(ca_file)},
            "static_configs": [{"targets": [address], "labels": {"__scheme__": scheme}} for scheme, address in targets],
        })
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        config["scrape_configs"].append({"job_name": "prometheus", "static_configs": [{"targets": [self.url[7:]]}]})
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        super().__init__(folder, "prometheus", [
            "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={self.url[7:]}"])
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        await_true("Prometheus", self.is_ready)
        self.began = time.time()

    def is_ready(self):
        try:
            return bool(self.said()) and self.opener.open(self.url + "/-/ready").status == 200
        except OSError:
            return False

    def get(self, path, **query):
        try:
            with self.opener.open(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None

    def now(self, query):
        return float(self.get("query", query=query)["result"][0]["value"][1])

    def values(self, query):
        """All that the query has given since the beginning, second by second, without what is not a number."""
        found = self.get("query_range", query=query, start=self.began, end=time.time(), step=1)["result"]
        return [float(v) for series in found for _, v in series["values"] if v != "NaN"]


@pytest.fixture(scope="session")
def prometheus(folder, open_daemon, guarded_daemon):
    """It has scraped both daemons for as long as the load lasted, with a reload in between."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: make deps-lint")
    p = Prometheus(folder, [("http", open_daemon.address), ("https", guarded_daemon.address)],
                   folder / "certificate.pem")
    clients = Clients(guarded_daemon)
    loads = [
        aft_load(folder, open_daemon, "streams", "--concurrency=2", "--max-tokens=60", f"--model={TEXT}"),
        aft_load(folder, open_daemon, "pictures", ROOT / "tests/data/cifar", f"--model={PICTURES}"),
        aft_load(folder, open_daemon, "whole", "--no-stream", "--rate=30", "--max-tokens=20", f"--model={TEXT}"),
    ]
    try:
        clients.start()
        time.sleep(SECONDS / 2)
        guarded_daemon.process.send_signal(signal.SIGHUP)
        for load in loads:
            load.process.wait(SECONDS + HANG_S)
            assert load.process.returncode == 0, load.log.read_text()
        await_true("the reload", lambda: guarded_daemon.said("reload: {"))
        clients.end()
        for what in ('timestamp(up{job="aftd"})', "prometheus_rule_group_last_evaluation_timestamp_seconds"):
            ended = time.time()  # what was counted last has been scraped, and then the rules evaluated
            await_true(what, lambda: p.now(f"min({what})") > ended)  # noqa: B023
        yield p
    finally:
        clients.stopped.set()
        for load in loads:
            load.process.kill()
        p.stop()
