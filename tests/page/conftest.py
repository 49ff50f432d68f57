"""Headless Chromium and the real daemon, for the tests of the page. `make test-page` runs them.

Nothing but 127.0.0.1 can be reached from the browser, every request that a page makes is looked at, and a test fails if
the page wrote an error to the console. Screenshots go to build/page/.
"""
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "page"
HANG_S = 60  # within which what must come has come: a limit on hangs, never a verdict
LIMIT_MS = 1000 * HANG_S
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ALL = bool(os.environ.get("AFTD_TEST_ALL"))
# The screens and themes with which the page is looked at: opposite corners, or all four.
LOOKS = [(360, "dark"), (1280, "light")] + ALL * [(360, "light"), (1280, "dark")]
FLAGS = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


@pytest.fixture(scope="session")
def daemon():
    d = Daemon("--models-dir=weights/models", "--threads=1", "--max-tokens-max=20000")
    yield d
    d.stop()


@pytest.fixture
def start_daemon():
    started = []

    def start(*flags):
        started.append(Daemon("--models-dir=weights/models", "--threads=1", *flags))
        return started[-1]

    yield start
    for d in started:
        if d.process.poll() is None:
            d.stop()


@pytest.fixture
def make_key(tmp_path):
    file = tmp_path / "keys.json"

    def make(name, *rights):
        run = subprocess.run([ROOT / "build" / "aft", "key", "add", name, "--file", file, *rights], check=True,
                             capture_output=True, text=True)
        return run.stdout.strip()

    make.file = file
    return make


NGINX = """
daemon off; master_process off; pid nginx.pid; events { worker_connections 64; }
http {
    access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u;
    scgi_temp_path s; proxy_http_version 1.1;
    server {
        listen 127.0.0.1:%d;
        location / { proxy_pass %s; }
        location /aft/ { proxy_pass %s/; }
    }
}
"""


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def nginx(daemon, tmp_path_factory):
    """Debian's nginx, which has the daemon at / and, without that prefix, at /aft/; its address."""
    folder = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(NGINX % (port, daemon.url, daemon.url))
    process = subprocess.Popen(
        ["/usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    until = time.monotonic() + HANG_S
    try:
        while not listens(port):
            assert process.poll() is None and time.monotonic() < until, (folder / "error.log").read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def browser():
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS + root)
        yield b
        b.close()


@pytest.fixture
def visit(browser, daemon, start_daemon):  # the pages are closed before their daemons stop
    """A function that opens the page as somebody with such a screen and such wishes does."""
    contexts, faults = [], []

    def open_page(url=None, width=1280, height=1000, expect=(), ready="#classify .check input",
                  prepare=lambda page: None, **wishes):
        url = url or daemon.url
        origin = "/".join(url.split("/")[:3])
        phone = width < 500
        context = browser.new_context(viewport={"width": width, "height": height}, has_touch=phone, is_mobile=phone,
                                      **wishes)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)

        def hear(message):
            if message.type in ("error", "warning") and not any(text in message.text for text in expect):
                faults.append(f"console: {message.text}")

        def look(request):
            if not request.url.startswith((url + "/", f"blob:{origin}/", "data:")):
                faults.append(f"asked elsewhere: {request.url}")

        page.on("console", hear)
        page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
        page.on("request", look)
        prepare(page)
        page.goto(url + "/")
        page.locator(ready).first.wait_for()  # the models are known
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


ASKED = """(() => {
    const { fetch } = window;
    window.asked = [];
    window.fetch = (url, ...more) => {
        window.asked.push(String(url).split("/").at(-1));
        return fetch(url, ...more);
    };
})()"""


def stop_clock(page):
    """For `prepare`: no time passes in the page but what the test has let_pass()."""
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.add_init_script(ASKED)


def let_pass(page, seconds):
    """And what the page asks for meanwhile, as the last parts of the paths."""
    page.evaluate("window.asked = []")
    page.clock.run_for(1000 * seconds)
    return page.evaluate("window.asked")


@pytest.fixture
def shoot():
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=SCREENSHOTS / f"{name}.png")


def pytest_terminal_summary(terminalreporter):
    """The line that CI adds up."""
    count = lambda *kinds: sum(len(terminalreporter.stats.get(kind, [])) for kind in kinds)
    print(f"\n{count('passed')} passed, {count('failed', 'error')} failed, {count('skipped')} skipped")
