import gzip
import lzma
import signal

import numpy as np
import pytest
from interrupt import interrupted, rows

from aft_train import load, text
from aft_train.corpus import read_bytes
from aft_train.quality import bits_per_byte

TINY = ["--depth", "1", "--dim", "16", "--context", "16", "--window", "4", "--batch", "4", "--threads", "1",
        "--warmup", "5", "--steps", "10", "--log-every", "5", "--evaluate-every", "5", "--train-dtype", "f32"]
FULL = [*TINY, "--log-every", "2", "--evaluate-every", "20", "--save-every", "7", "--decay", "0", "--warmup", "1000",
        "--optimizer", "muon", "--lr", "0.05", "--ema", "0.9", "--dropout", "0.1"]
PATTERN = np.random.default_rng(3).integers(97, 105, 29).astype(np.uint8).tobytes()  # of 8 letters, to be repeated

FLIPPED = bytearray(gzip.compress(PATTERN * 9))
FLIPPED[12] ^= 0xFF


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(PATTERN * 50)
    return str(path)


def refusal(capsys, *arguments):
    """The one line that a wrong command line gets, with exit code 2."""
    capsys.readouterr()
    assert text.main(list(arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("aft_train.text: "), lines
    return lines[0]


def model_file(run):
    return (run / "model" / "model.safetensors").read_bytes()


def test_a_run_that_was_killed_and_stopped_goes_on_as_if_it_had_not_been(file, tmp_path):
    """With all that a checkpoint must carry: two optimisers, the weights' average, dropout's random numbers."""
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    steps, story = interrupted("text", text.main, [file, *FULL], parts, [signal.SIGKILL, signal.SIGTERM])
    assert text.main([file, *FULL, "--steps", str(steps), "--run", str(whole)]) == 0
    assert rows(parts) == rows(whole) and len(rows(whole)) >= steps // 2, story
    assert model_file(parts) == model_file(whole), story


def test_a_pattern_is_learnt_far_below_the_entropy_of_its_letters(file, tmp_path):
    """Its next letter follows from the few before it: 0 bits are left but for a window's first letters."""
    run = tmp_path / "run"
    assert text.main([file, *TINY, "--dim", "32", "--batch", "16", "--steps", "120", "--lr", "1e-2", "--ema", "0.9",
                      "--optimizer", "muon", "--evaluate-every", "120",
                      "--train", "500:1305", "--test", "0:500", "--run", str(run)]) == 0
    share = np.unique(np.frombuffer(PATTERN, np.uint8), return_counts=True)[1] / len(PATTERN)
    unigram = -(share * np.log2(share)).sum()
    table = rows(run)
    assert float(table[0]["loss"]) / np.log(2) > unigram > 2.5
    bits = float(table[-1]["bits_per_byte"])
    assert bits < 0.4 * unigram
    held = np.frombuffer(PATTERN * 50, np.uint8)[1305:]
    assert bits_per_byte(load(run / "model"), held) == pytest.approx(bits, abs=2e-6)
    card = (run / "model" / "README.md").read_text()
    assert f"{bits:.4f} bits per byte" in card and "test: bytes 0 to 500" in card and "after 8 or more" in card
    assert (run / "model" / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix, pack", [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_files_are_unpacked(tmp_path, suffix, pack):
    path = tmp_path / ("text" + suffix)
    path.write_bytes(pack(PATTERN))
    assert read_bytes(path).tobytes() == PATTERN


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    run = ["--run", str(tmp_path / "run"), *TINY]
    assert "missing: No such file" in refusal(capsys, str(tmp_path / "missing"), *run)
    for name, damaged in (("cut.xz", lzma.compress(PATTERN)[:-9]), ("cut.gz", gzip.compress(PATTERN)[:-9]),
                          ("no.gz", PATTERN), ("flipped.gz", FLIPPED)):
        (tmp_path / name).write_bytes(damaged)
        assert str(tmp_path / name) in refusal(capsys, str(tmp_path / name), *run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name, value, wanted", [
    ("--train", "5", "'5', expected FIRST:LAST"), ("--valid", "a:b", "'a:b', expected FIRST:LAST"),
    ("--train", "1:2:3", "'1:2:3', expected FIRST:LAST"), ("--train", "700:600", "is 0 of the file's 1450 bytes"),
    ("--valid", "0:16", "is 16 of the file's 1450 bytes, expected 17 or more"),
    ("--train", "1440:9999", "is 10 of the file's 1450 bytes"),
])
def test_spans_that_hold_too_little_are_refused(file, tmp_path, capsys, name, value, wanted):
    line = refusal(capsys, file, "--run", str(tmp_path / "run"), *TINY, name, value)
    assert name in line and wanted in line


def test_too_little_text_is_refused(tmp_path, capsys):
    for data, wanted in ((PATTERN, "--valid 27: is 2 of the file's 29 bytes"), (b"", "is 0 of the file's 0 bytes")):
        (tmp_path / "short").write_bytes(data)
        assert wanted in refusal(capsys, str(tmp_path / "short"), "--run", str(tmp_path / "run"), *TINY)


@pytest.mark.parametrize("wrong, wanted", [
    (["--window", "-1"], "mixer.window is -1"), (["--depth", "0"], "depth is 0"), (["--dim", "0"], "dim is 0"),
    (["--context", "0"], "input.context is 0"), (["--heads", "2"], "--heads 2 is for"),
    (["--kernel", "2"], "--kernel 2 is for aft-conv"), (["--threads", "9999"], "--threads is 9999, expected at most"),
    (["--seed", "99999999999999999"], "--seed is 99999999999999999, expected at most"),
    (["--train", "0:1400"], "--train 0:1400 overlaps --valid 1305:1450"),
    (["--test", "1200:1300"], "overlaps --test 1200:1300"), (["--valid-limit", "16"], "--valid-limit is 16"),
    (["--lr", "0"], "--lr is 0.0"),
    (["--batch", "0"], "--batch is 0"), (["--ema", "1.5"], "--ema is 1.5"), (["--warmup", "-1"], "--warmup is -1"),
    (["--lr", "nan"], "--lr is nan"), (["--out", "/dev/null/model"], "/dev/null is no folder"),
])
def test_a_contradictory_configuration_is_refused(file, tmp_path, capsys, wrong, wanted):
    assert wanted in refusal(capsys, file, "--run", str(tmp_path / "run"), *TINY, *wrong)


def test_unknown_choices_are_wrong_usage(file, tmp_path):
    for wrong in (["--mixer", "fastformer"], ["--preset", "huge"], ["--optimizer", "sgd"], ["--steps", "many"]):
        with pytest.raises(SystemExit) as exit:
            text.main([file, "--run", str(tmp_path / "run"), *wrong])
        assert exit.value.code == 2
