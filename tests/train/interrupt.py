"""Trainers as processes of their own, to be stopped at a step."""
import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "weights" / "train"
WAIT_SECONDS = 300  # a machine may be busy


def rows(run):
    """log.csv of a run's folder without its seconds, which no two runs share."""
    with open(run / "log.csv", newline="") as f:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(f)]


def last_step(run):
    try:
        lines = (run / "log.csv").read_text().split("\n")[:-1]  # what follows the last newline may be half a row
    except FileNotFoundError:
        return 0
    return int(lines[-1].split(",")[0]) if len(lines) > 1 else 0


def stop(module, arguments, run, step, how):
    """Start `python -m aft_train.MODULE`, send it the signal `how` once it is past a step. -> its exit code."""
    command = [sys.executable, "-m", f"aft_train.{module}", *arguments, "--run", str(run)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONPYCACHEPREFIX": "build/pycache"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        before = time.monotonic()
        while last_step(run) <= step:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() - before < WAIT_SECONDS, f"step {last_step(run)} after {WAIT_SECONDS} seconds"
            time.sleep(0.002)
        process.send_signal(how)
        code = process.wait(WAIT_SECONDS)
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
    return code


def interrupted(module, main, arguments, run, signals):
    """A run without end that gets each of the signals at a random step, is started again, and ends soon after the last.

    -> (its steps, what was done, to be told when the run is not what it should be).
    """
    story, before = [], 0
    for how in signals:
        step = before + random.randrange(10, 40)
        story.append(f"{how.name} after step {step}")
        code = stop(module, [*arguments, "--steps", "1000000"], run, step, how)
        assert code == (130 if how == signal.SIGTERM else -how) and not (run / "model").exists(), story
        before = last_step(run)
        assert before > step, story
    steps = before + random.randrange(10, 40)
    assert main([*arguments, "--steps", str(steps), "--run", str(run)]) == 0, story
    return steps, story
