"""KServe's own client for Python, as it is, against the daemon: kserve_client.py does it, in its own environment."""

import subprocess

import pytest
from conftest import ROOT, SLOW

PYTHON = ROOT / "build" / "clients" / "kserve" / "bin" / "python"
PICTURE = ROOT / "tests" / "data" / "cifar" / "cat.jpg"


@pytest.mark.skipif(not PYTHON.exists(), reason="kserve is not installed: make deps-clients")
def test_kserves_client_works(daemon):
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "clients" / "kserve_client.py", daemon.url, PICTURE],
        capture_output=True, text=True, timeout=120 * SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 4
