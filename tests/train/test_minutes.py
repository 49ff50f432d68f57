"""Runs with --minutes: by the clock, without a folder, from data to a model that is served."""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from interrupt import PACKAGE, WAIT_SECONDS, last_step
from test_images import coloured
from test_pictures import picture, write_folder
from tiny import tiny_model

import aft_train_cli as cli
from aft_train import images, load, loop, text
from aft_train.check import check
from aft_train.pictures import read_pictures
from aft_train.recipe import Recipe

COMPILED = str(ROOT / "build" / "pycache")
SHORT = ["--minutes", "0.03", "--threads", "1", "--train-dtype", "f32"]  # 1.8 s
WORDS = " ".join(random.Random(1).choices("the cat sat on a mat and saw another cat".split(), k=2000)).encode()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to be in, with a text and pictures of two colours; what is temporary lies in `tmp`."""
    (tmp_path / "here").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "here" / "some words.txt").write_bytes(WORDS)
    write_folder(tmp_path / "here" / "colours", {
        f"{name}/{i}.jpg": coloured((i, colour), rgb) for i in range(20)
        for colour, (name, rgb) in enumerate((("green", (90, 140, 90)), ("red", (140, 90, 90))))})
    return tmp_path / "here"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refusal(capsys, *arguments):
    """The one line that a wrong command line gets, with exit code 2."""
    capsys.readouterr()
    assert cli.main(list(arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


# ---- the clock -------------------------------------------------------------------------------------------------------


def clocked(folder, pause, minutes=0.05):
    """Train a tiny model with a pause before every step. -> (seconds it took, [(share of the time, rate / lr)])"""
    rates = []
    plan = Recipe(steps=1000, batch=1, lr=0.1, minutes=minutes, warmup=200, decay=0.5, train_dtype="f32", log_every=1)

    def batch(step):
        rates.append((run.done(), run.optimisers[0].param_groups[0]["lr"] / plan.lr))
        time.sleep(pause)
        return (torch.arange(12)[None] + step) % 256

    args = argparse.Namespace(run=str(folder), out=None, dtype="f32", aft=None, license="unknown", command=["test"])
    run = loop.Run(args, tiny_model("text-classification", "aft-simple", depth=1), plan, {}, metric="nothing",
                   evaluate=lambda model: 0.0, batch=batch, loss=lambda forward, x: forward(x).square().mean())
    before = time.monotonic()
    assert run.train()
    return time.monotonic() - before, rates


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_the_rate_rises_and_falls_to_nothing_within_the_time_however_fast_steps_are(tmp_path, pause):
    seconds, rates = clocked(tmp_path / "run", pause)
    assert seconds >= 3
    assert len(rates) <= 31 if pause else len(rates) > 40
    longest = max(b[0] - a[0] for a, b in zip(rates, rates[1:]))
    assert rates[-1][0] < 1 <= rates[-1][0] + 2 * longest
    for share, rate in rates:
        assert rate == pytest.approx(min(1, (1000 * share + 1) / 200, (1 - share) / 0.5)), share
    assert rates[0][1] < 0.1 and rates[-1][1] <= 4 * longest


def test_a_run_that_is_kept_goes_on_with_the_time_that_is_left(here):
    code, told = stopped(here, "10", [signal.SIGINT], 0.1, "--run", "kept")
    assert code == 130 and "the same command goes on from there" in told and not (here / "kept" / "model").exists()
    steps, seconds = last_step(here / "kept"), last_seconds(here / "kept")
    assert cli.main(["text", "some words.txt", *SHORT, "--run", "kept", "--minutes", str(seconds / 60 + 0.02)]) == 0
    assert last_step(here / "kept") > steps and check("kept/model")[0] < 1e-4
    assert seconds + 1.2 <= last_seconds(here / "kept") + 0.05  # which is rounded


# ---- from data to a model --------------------------------------------------------------------------------------------


def test_a_text_becomes_a_model_and_nothing_else(here, aft, capsys):
    assert cli.main(["text", "some words.txt", *SHORT]) == 0
    assert capsys.readouterr().out == "models/some-words\n"
    assert names(here) == ["colours", "models", "some words.txt"] and names(here / "models") == ["some-words"]
    assert not list((here.parent / "tmp").glob("aft-train-*"))
    assert names(here / "models" / "some-words") == ["README.md", "cases.safetensors", "config.json", "curves.png",
                                                     "model.safetensors"]
    subprocess.run([aft, "verify", "models/some-words"], check=True, stdout=subprocess.DEVNULL)
    card = (here / "models" / "some-words" / "README.md").read_text()
    assert "    aft-train text 'some words.txt' --minutes 0.03 --threads 1 --train-dtype f32\n" in card
    assert " bits per byte |\n| baseline: byte frequencies | " in card
    assert re.search(r"\bIt took \d+ s on: ", card) and "of the time, falling to 0 over the last 70%" in card
    held = len(WORDS) - len(WORDS) // 10
    assert f"Bytes 0 to {held:,} of some words.txt" in card and f"held out: bytes {held:,} to {len(WORDS):,}" in card


def test_pictures_become_a_model_with_their_folders_for_labels(here, aft, capsys):
    assert cli.main(["pictures", "colours/", *SHORT]) == 0
    assert capsys.readouterr().out == "models/colours\n"
    model = load("models/colours")
    assert model.config.labels == ["green", "red"] and model.config.size == (32, 32)
    subprocess.run([aft, "verify", "models/colours"], check=True, stdout=subprocess.DEVNULL)
    card = (here / "models" / "colours" / "README.md").read_text()
    assert "20 pictures of colours in 2 classes" in card and "held out: 20 pictures | " in card
    assert "baseline: majority class | " in card and "steps of 20 pictures" in card


def test_a_model_that_is_there_is_replaced_only_by_name(here, capsys):
    (here / "models" / "some-words").mkdir(parents=True)
    (here / "models" / "some-words" / "config.json").write_text("of a month's work")
    line = refusal(capsys, "text", "some words.txt", *SHORT)
    assert line == ("aft-train text: models/some-words exists: --out models/some-words replaces it, another --out "
                    "leaves it as it is")
    script = "import sys, aft_train_cli as cli\nassert cli.main(sys.argv[1:]) == 2\nassert 'torch' not in sys.modules"
    told = subprocess.run([sys.executable, "-c", script, "text", "some words.txt", *SHORT],
                          env={**os.environ, "PYTHONPATH": PACKAGE}, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, line + "\n")  # at once: PyTorch's import takes seconds
    assert cli.main(["text", "some words.txt", *SHORT, "--out", "models/some-words"]) == 0
    assert check("models/some-words")[0] < 1e-4


# ---- interruptions ---------------------------------------------------------------------------------------------------


def last_seconds(run):
    """The time of log.csv's last row."""
    if not last_step(run):
        return 0.0
    return float((run / "log.csv").read_text().split("\n")[:-1][-1].split(",")[1])


def stopped(here, minutes, signals, seconds, *more):
    """Send signals to a run that has learnt for so many seconds. -> (exit code, what it told)"""
    scratch = here.parent / "tmp"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONPYCACHEPREFIX": COMPILED,
                   "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "aft_train", "text", "some words.txt", *SHORT, "--log-every", "1", *more,
               "--minutes", minutes]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          text=True) as process:
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while max(map(last_seconds, [here / "kept", *scratch.glob("aft-train-*")])) < seconds:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            for how in signals:
                process.send_signal(how)
                time.sleep(0.02)
            code = process.wait(WAIT_SECONDS)
            told = process.stderr.read()
        finally:
            process.kill()
    assert not list(scratch.glob("aft-train-*")) and "Traceback" not in told  # PyTorch keeps folders there
    return code, told


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_ends_with_the_model_as_far_as_it_came(here, how):
    code, told = stopped(here, "0.5", [how], 2.0)  # it warms up for 1.5 s
    assert code == 0 and "stopping after this step with the model as it is" in told
    assert names(here / "models") == ["some-words"] and check("models/some-words")[0] < 1e-4
    assert "% of 30 s." in (here / "models" / "some-words" / "README.md").read_text()


def test_a_run_that_is_stopped_when_it_has_hardly_begun_leaves_nothing(here):
    code, told = stopped(here, "100", [signal.SIGINT], 0.1)
    assert code == 130 and "no model is written" in told
    assert names(here) == ["colours", "some words.txt"]


def test_a_run_that_is_stopped_twice_leaves_a_whole_model_or_none(here):
    code, told = stopped(here, "0.5", [signal.SIGINT, signal.SIGINT], 2.0)
    if code == 0:  # the second came too late
        assert names(here / "models") == ["some-words"] and check("models/some-words")[0] < 1e-4
    else:
        assert code == 130 and "no model is written" in told
        assert not (here / "models").exists() or names(here / "models") == []


# ---- what suits the data and the time --------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes, size, fits", [
    (2, 1000, ("quick", 32)), (2, 6000, ("quick", 256)), (2, 1 << 30, ("quick", 256)), (60, 100_000, ("quick", 256)),
    (20, 1 << 20, ("demo", 512)), (600, 4 << 20, ("demo", 512)), (600, 1 << 30, ("small", 1024)),
])
def test_a_text_and_a_time_choose_the_model(minutes, size, fits):
    assert text.fitting(minutes, size) == fits


@pytest.mark.parametrize("minutes, count, side, fits", [
    (2, 40, 40, ("quick", {})), (2, 40, 64, ("quick", images.LARGE)), (60, 40, 40, ("quick", {})),
    (20, 5000, 64, ("demo", {})), (600, 5000, 40, ("demo", {})), (600, 20000, 40, ("small", {})),
])
def test_pictures_and_a_time_choose_the_model(minutes, count, side, fits, tmp_path):
    files = {"a/1.png": picture(0, (side, side + 9)), "b/1.png": picture(1, (side + 9, side))}
    source = read_pictures(write_folder(tmp_path / "p", files))
    source.names, source.labels, source.sources = (x * (count // 2) for x in (source.names, source.labels,
                                                                              source.sources))
    assert images.fitting(minutes, source) == fits


def test_large_pictures_are_seen_whole_and_larger(here):
    """In as many patches as small ones."""
    files = {f"{label}/{i}.png": picture((label, i), (70, 90)) for label in (1, 2) for i in range(5)}
    write_folder(here / "large", files)
    assert cli.main(["pictures", "large", *SHORT, "--depth", "1", "--dim", "16"]) == 0
    config = load("models/large").config
    assert (config.size, config.resize_to, config.grid) == ((64, 64), 64, (8, 8))


def test_what_is_given_is_taken(here):
    assert cli.main(["text", "some words.txt", *SHORT, "--depth", "1", "--dim", "16", "--context", "64", "--batch", "3",
                     "--out", "models/own"]) == 0
    config = load("models/own").config
    assert (config.depth, config.dim, config.context) == (1, 16, 64)
    assert cli.main(["pictures", "colours", *SHORT, "--preset", "demo", "--depth", "1", "--out", "models/seen"]) == 0
    config = load("models/seen").config
    assert (config.depth, config.dim) == (1, 128)


@pytest.mark.parametrize("path, name", [
    ("a/moby dick.txt", "moby-dick"), ("enwik8", "enwik8"), ("a/x.txt.xz", "x"), ("pets.tar.gz", "pets"),
    (".hidden", "hidden"), ("\u00e9\u00e8", "model"), ("a" * 99, "a" * 64), ("v1.5/", "v1.5"),
])
def test_a_model_is_named_after_what_it_learns(path, name, here):
    if path.endswith("/"):
        (here / path).mkdir()
    assert cli.place_of(path) == Path("models", name)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, wanted", [(0, "0 bytes"), (10, "10 bytes"), (999, "999 bytes")])
def test_a_text_too_short_to_learn_from_is_refused(size, wanted, here, capsys):
    (here / "short").write_bytes(WORDS[:size])
    line = refusal(capsys, "text", "short", "--minutes", "2")
    assert line == f"aft-train text: short has {wanted}, expected 1000 or more to learn from"
    assert names(here) == ["colours", "short", "some words.txt"]


@pytest.mark.parametrize("files, wanted", [
    ({}, "p: holds no class folders, expected folders of pictures"),
    ({"1.png": picture(0)}, "p: holds no class folders, expected folders of pictures"),
    ({"a/1.png": picture(0), "a/2.png": picture(1)}, "p has the class a alone, expected two or more to tell apart"),
    ({"a/1.png": picture(0), "b/notes.txt": b"dear"}, "the class folder b holds no pictures"),
    ({f"{c}/{i}.jpg": coloured(i, (9, 9, 9)) if i else b"no picture" for c in "ab" for i in range(9)},
     "p/a/0.jpg: no picture that can be read"),
])
def test_pictures_that_cannot_be_learnt_from_are_refused_before_the_time_begins(files, wanted, here, capsys):
    write_folder(here / "p", files)
    (here / "p").mkdir(exist_ok=True)
    before = time.monotonic()
    line = refusal(capsys, "pictures", "p", "--minutes", "100")
    assert line.startswith("aft-train pictures: ") and wanted in line and time.monotonic() - before < 60
    assert names(here) == ["colours", "p", "some words.txt"] and not list((here.parent / "tmp").iterdir())


def test_files_that_are_no_pictures_by_name_are_told(here, capsys):
    (here / "colours" / "red" / "IMG_1.heic").write_bytes(b"a photograph")
    (here / "colours" / "stray.jpg").write_bytes(picture(0))
    assert cli.main(["pictures", "colours", *SHORT]) == 0
    assert "2 files in colours are left out, such as colours/red/IMG_1.heic" in capsys.readouterr().err


@pytest.mark.parametrize("wrong, wanted", [
    ([], "expected --minutes M, to train for so long, or --run FOLDER"),
    (["--minutes", "0"], "--minutes is 0, expected more"), (["--minutes", "-1"], "--minutes is -1, expected"),
    (["--minutes", "nan"], "--minutes is nan, expected"),
    (["--minutes", "inf"], "--minutes is inf, expected at most 1000000"),
    (["--minutes", "2", "--steps", "9"], "--steps 9 counts steps, expected it without --minutes"),
    (["--minutes", "2", "--warmup", "9"], "--warmup 9 counts steps, expected it without --minutes"),
    (["--minutes", "2", "--out", "/dev/null/m"], "/dev/null is no folder"),
])
def test_contradictions_about_the_time_are_refused(wrong, wanted, here, capsys):
    for verb, data in (("text", "some words.txt"), ("pictures", "colours")):
        line = refusal(capsys, verb, data, *wrong)
        assert line.startswith(f"aft-train {verb}: ") and wanted in line
    assert names(here) == ["colours", "some words.txt"] and not list((here.parent / "tmp").iterdir())


def test_ctrl_c_while_pytorch_is_loaded_ends_without_a_traceback(here):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONPYCACHEPREFIX": COMPILED}
    command = [sys.executable, str(PACKAGE / "aft_train_cli.py"), "text", "some words.txt", "--minutes", "100"]
    # What a shell runs in the background ignores Ctrl-C, and so would what these tests start.
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while "torch" not in Path(f"/proc/{process.pid}/maps").read_text():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 130
            told = process.stderr.read()
        finally:
            process.kill()
    assert "Traceback" not in told and "aft-train text: stopped" in told
    assert names(here) == ["colours", "some words.txt"]


def test_verbs_that_do_not_exist_are_refused(capsys):
    for arguments, found in ([], "no command"), (["fly"], "unknown command 'fly'"):
        line = refusal(capsys, *arguments)
        assert line == f"aft-train: {found}, expected {', '.join(cli.VERBS)}"
    assert cli.main(["--help"]) == 0
    assert all(f"  {verb} " in capsys.readouterr().out for verb in ["pictures"])
