"""What is in tests/examples does what it says, with the real daemon and the clients that it names."""

import contextlib
import json
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

import browser
import pytest
from conftest import ROOT, SLOW

EXAMPLES = ROOT / "tests" / "examples"
PICTURES = ROOT / "tests" / "data" / "cifar"
PNG = ROOT / "tests" / "data" / "images" / "formats" / "rgb-8.png"
KSERVE = ROOT / "build" / "clients" / "kserve" / "bin" / "python"
PROMTOOL = shutil.which("promtool")
PROMPT = "The history of "


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 * SLOW, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def written(daemon):
    """What the daemon makes of the prompt, which depends on the processor: the examples ask for the same."""
    fields = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0.7, "seed": 1}
    with urllib.request.urlopen(daemon.url + "/generate", json.dumps(fields).encode(), timeout=60 * SLOW) as answer:
        return json.load(answer)["text"]


def twice(text):
    return f"{PROMPT}{text}\n{text}\n"


def test_python_alone(daemon):
    labels, text = run(sys.executable, EXAMPLES / "plain.py", daemon.url).split("\n", 3)[:4:3]
    assert re.fullmatch(r"0\.9\d+ ship", labels) and text == PROMPT + written(daemon) + "\n"
    refused = run(sys.executable, EXAMPLES / "plain.py", daemon.url, ROOT / "README.md", code=1)
    assert refused == ""


class BreakingProxy:
    """Before a daemon: of each answer so many bytes come through, and all of those that come later."""

    def __init__(self, port, cuts):
        self.port, self.cuts, self.count = port, cuts, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            left = self.cuts[self.count] if self.count < len(self.cuts) else 1 << 30
            self.count += 1
            # A peer that is gone (ConnectionError) ends its connection, not the proxy.
            with (
                contextlib.suppress(ConnectionError),
                client,
                socket.create_connection(("127.0.0.1", self.port)) as daemon,
            ):
                while left > 0:
                    for ready in select.select([client, daemon], [], [])[0]:
                        data = ready.recv(min(left, 4096) if ready is daemon else 4096)
                        if not data:
                            left = 0
                        elif ready is client:
                            daemon.sendall(data)
                        else:
                            client.sendall(data)
                            left -= len(data)


@pytest.mark.parametrize("program", [[sys.executable, "going_on.py"], ["node", "going_on.mjs"]])
def test_a_text_that_goes_on(daemon, program):
    if shutil.which(program[0]) is None:
        pytest.skip("node is not installed: make deps-clients")
    command = [program[0], EXAMPLES / program[1]]
    fields = {"prompt": PROMPT, "max_tokens": 1000, "seed": 1}
    with urllib.request.urlopen(daemon.url + "/generate", json.dumps(fields).encode(), timeout=60 * SLOW) as answer:
        text = json.load(answer)["text"]
    proxy = BreakingProxy(daemon.port, [2000, 100, 700, 1500])
    assert run(*command, proxy.url, PROMPT, "1000") == text + "\n"
    assert proxy.count > len(proxy.cuts)  # each has cut a text; node may open a connection more than it uses
    assert run(*command, proxy.url, PROMPT, "0", code=1) == ""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_folder_of_pictures(daemon, tmp_path):
    for name in "cat.jpg", "rgb.png", "what a cat.jpg":
        source = PICTURES / "cat.jpg" if name.endswith("jpg") else PNG
        shutil.copy(source, tmp_path / name)
    script = EXAMPLES / "classify_folder.sh"
    lines = run("sh", script, tmp_path, daemon.url).splitlines()
    assert len(lines) == 3 and re.fullmatch(rf"0\.\d+ cat {tmp_path}/cat\.jpg", lines[0])
    (tmp_path / "text.webp").write_text("no picture")
    assert len(run("sh", script, tmp_path, daemon.url, code=1).splitlines()) == 3
    assert run("sh", script, tmp_path / "none", daemon.url) == ""


def test_langchain(daemon):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed: make deps-clients")
    assert run(sys.executable, EXAMPLES / "with_langchain.py", daemon.url) == twice(written(daemon))


def test_litellm(daemon):
    pytest.importorskip("litellm", reason="litellm is not installed: make deps-clients")
    assert run(sys.executable, EXAMPLES / "with_litellm.py", daemon.url) == twice(written(daemon))


@pytest.mark.skipif(not KSERVE.exists(), reason="kserve is not installed: make deps-clients")
def test_kserve(daemon):
    assert re.fullmatch(r"0\.9\d+ ship\n", run(KSERVE, EXAMPLES / "with_kserve.py", daemon.url))


@pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed: make deps-page")
def test_a_page(start_daemon, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(EXAMPLES / "page.html", site)
    shutil.copy(PICTURES / "cat.jpg", site)
    with browser.served(site) as origin:
        daemon = start_daemon(f"--cors-origins={origin}")
        query = urllib.parse.urlencode({"daemon": daemon.url, "prompt": "The history of ", "picture": "cat.jpg"})
        text = PROMPT + written(daemon)
        html = browser.look(f"{origin}/page.html?{query}", tmp_path / "profile")
    assert re.search(r'<p id="text"[^>]*>(.*?)</p>', html, re.S)[1].strip() == text.strip()
    assert re.search(r'<span id="labels">cat 0\.\d{4}, \w+ 0\.\d{4}, \w+ 0\.\d{4}</span>', html)


def test_what_people_ask_prometheus(daemon):
    queries = (EXAMPLES / "queries.yml").read_text()
    with urllib.request.urlopen(daemon.url + "/metrics", timeout=60) as answer:
        there = set(re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.M))
    source = (ROOT / "server" / "core" / "metrics.h").read_text()  # what is not there without traffic or TLS
    there |= set(re.findall(r'METRIC_\w+, "(\w+)"', source))
    asked = set(re.findall(r"\b(?:aftd|process)_\w+", queries))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= there
    if PROMTOOL is None:
        pytest.skip("promtool is not installed: make deps-lint")
    assert "SUCCESS" in run(PROMTOOL, "check", "rules", EXAMPLES / "queries.yml")
