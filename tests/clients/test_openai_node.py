"""OpenAI's own client for JavaScript, as it is, against the daemon: openai_client.mjs does it."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT, SLOW

MODULES = ROOT / "build" / "clients"
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed: make deps-clients"),
    pytest.mark.skipif(
        not (MODULES / "node_modules" / "openai").exists(), reason="npm's openai is not installed: make deps-clients"
    ),
]


def test_the_javascript_client_works(daemon, start_daemon, chat_daemon):
    full = start_daemon("--streams-max=1", "--queue-jobs-max=1")
    done = subprocess.run(
        [NODE, ROOT / "tests" / "clients" / "openai_client.mjs", daemon.url, MODULES, full.url, chat_daemon.url],
        capture_output=True, text=True, timeout=120 * SLOW, env=os.environ | {"NODE_PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 7
