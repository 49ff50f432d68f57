"""The eventsource package for Node, as it is, against GET /generate: eventsource_client.mjs does it."""

import shutil
import subprocess

import pytest
from conftest import ROOT, SLOW

MODULES = ROOT / "build" / "clients"
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed: make deps-clients"),
    pytest.mark.skipif(
        not (MODULES / "node_modules" / "eventsource").exists(),
        reason="npm's eventsource is not installed: make deps-clients",
    ),
]


def test_an_event_source_reads_a_text_and_gives_up_at_its_end(daemon):
    done = subprocess.run(
        [NODE, ROOT / "tests" / "clients" / "eventsource_client.mjs", daemon.url, MODULES],
        capture_output=True, text=True, timeout=120 * SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 4
