"""A page of another origin in a headless Chromium: what it looks like once nothing happens on it any more."""

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import threading

from conftest import SLOW

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """The URL at which the folder's files are."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def look(url, profile):
    """The page's HTML, 20 s later in its own time, which stands still while something is loaded."""
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--virtual-time-budget=20000", "--dump-dom", url],
        capture_output=True, text=True, timeout=120 * SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
