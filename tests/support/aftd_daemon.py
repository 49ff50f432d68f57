"""The real daemon, for tests and benchmarks in Python: on a port that the kernel chooses, ended by its id."""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLOW = float(os.environ.get("AFTD_TEST_SLOW", "1"))
HANG_S = 120 * SLOW  # within which what must come has come: a limit on hangs, never a verdict


class Daemon:
    """In the repository's root, with the models that ship and no settings from the environment."""

    def __init__(self, *flags, command=None):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="aftd-")
        self.process = subprocess.Popen(
            [*(command or [os.environ.get("AFTD_TEST_DAEMON", ROOT / "build" / "aftd")]),
             "--listen-address=127.0.0.1", "--listen-port=0", *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("AFTD_")})  # fmt: skip
        end = time.monotonic() + HANG_S
        while not (found := re.search(r"listening on (https?://127\.0\.0\.1:(\d+))", self.said())):
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError(f"the daemon does not listen:\n{self.said()}")
            time.sleep(0.02)
        self.url, self.port = found[1], int(found[2])
        found = re.search(r"administration on http://127\.0\.0\.1:(\d+)", self.said())
        self.admin_port = int(found[1]) if found else None

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def cpu_s(self):
        """Processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        try:
            assert self.process.wait(HANG_S) == 0, self.said()
        finally:
            self.process.kill()
