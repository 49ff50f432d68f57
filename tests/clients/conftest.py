"""The real daemon for tests with clients that others wrote: started on a free port, its process ended by its id."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import ROOT, SLOW, Daemon

__all__ = ["ROOT", "SLOW"]  # for the tests


@pytest.fixture(scope="session")
def start_daemon():
    """start_daemon(*flags): one more daemon, until the session ends."""
    running = []

    def start(*flags):
        running.append(
            Daemon("--models-dir=weights/models", "--model=tests/data/models/enwik8-aft-local", "--threads=1", *flags)
        )
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
