"""The real daemon for tests with clients that others wrote: started on a free port, its process ended by its id."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = float(os.environ.get("AFTD_TEST_SLOW", "1"))
START_S = 120
STOP_S = 120


class Daemon:
    def __init__(self, folder, flags):
        program = os.environ.get("AFTD_TEST_DAEMON", str(ROOT / "build" / "aftd"))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "--listen-address=127.0.0.1", "--listen-port=0", "--threads=1",
                 f"--models-dir={ROOT / 'weights' / 'models'}", *flags],
                stderr=log, stdout=log, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        end = time.monotonic() + START_S
        while (found := re.search(r"listening on http\S*?:(\d+)", self.log.read_text())) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError(f"the daemon did not start:\n{self.log.read_text()}")
            time.sleep(0.02)
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        administration = re.search(r"administration on http\S*?:(\d+)", self.log.read_text())
        self.admin_port = int(administration.group(1)) if administration else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert code == 0, self.log.read_text()


@pytest.fixture(scope="session")
def start_daemon(tmp_path_factory):
    """start_daemon(*flags): one more daemon, until the session ends."""
    running = []

    def start(*flags):
        running.append(Daemon(tmp_path_factory.mktemp("aftd"), flags))
        return running[-1]

    yield start
    for daemon in running:
        daemon.stop()


@pytest.fixture(scope="session")
def daemon(start_daemon):
    """The one that tests share which need nothing of their own."""
    return start_daemon()


@pytest.fixture(scope="session")
def chat_daemon(start_daemon, tmp_path_factory):
    """One with a small model "chat" that has a chat_template, and the same without, "plain"."""
    models = tmp_path_factory.mktemp("models")
    for name in "chat", "plain":
        (models / name).mkdir()
        for file in "config.json", "model.safetensors":
            shutil.copy(ROOT / "tests" / "data" / "golden" / "lm-local-8" / file, models / name)
    config = json.loads((models / "chat" / "config.json").read_text())
    config["chat_template"] = {"system": "{content}\n\n", "user": "Q: {content}\n", "assistant": "A: {content}\n",
                               "reply": "A: ", "stop": ["\nQ:"]}  # fmt: skip
    (models / "chat" / "config.json").write_text(json.dumps(config))
    return start_daemon(f"--models-dir={models}")
