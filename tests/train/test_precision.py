"""Trainers with --aft: precision.json beside the finished model, of what was held out."""
import json

import pytest
from test_images import coloured
from test_pictures import write_folder

import aft_train_cli as cli
from aft_train import load

SHORT = ["--threads", "1", "--train-dtype", "f32", "--depth", "1", "--dim", "16", "--run", "run"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to be in, with a text and pictures of two colours."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(b"what is held out is the end of the text. " * 50)
    write_folder(tmp_path / "colours", {f"{name}/{i}.jpg": coloured((i, colour), rgb) for i in range(20)
                                        for colour, (name, rgb) in enumerate((("green", (90, 140, 90)),
                                                                              ("red", (140, 90, 90))))})
    return tmp_path


@pytest.mark.parametrize("verb, data, more, measure, samples", [
    ("text", "text", ["--context", "32"], "bits", 204), ("pictures", "colours", ["--batch", "4"], "top1_percent", 20),
    ("pixels", "colours", ["--size", "4"], "bits", 4 * 48),
])
def test_a_finished_run_has_aft_record_what_precisions_cost(verb, data, more, measure, samples, here, aft, capfd):
    assert cli.main([verb, data, *SHORT, "--steps", "3", "--warmup", "1", *more, "--aft", aft]) == 0
    told = json.loads((here / "run" / "model" / "precision.json").read_text())
    assert (told["measure"], told["samples"]) == (measure, samples)
    assert told["values"].keys() == {"f32", "bf16", "int8"}
    printed = capfd.readouterr()
    assert printed.out == "run/model\n" and "int8 " in printed.err
    assert load("run/model")


def test_an_aft_that_is_not_there_is_told_before_anything_is_trained(here, capsys):
    assert cli.main(["text", "text", *SHORT, "--steps", "3", "--aft", "build/aft"]) == 2
    assert capsys.readouterr().err == ("aft-train text: --aft build/aft is no program that can be run, expected aft, "
                                       "such as build/aft\n")
    assert not (here / "run").exists()


def test_a_measurement_that_fails_leaves_the_model(here, capsys):
    assert cli.main(["text", "text", *SHORT, "--steps", "3", "--context", "32", "--aft", "false"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith("run/model is written, but has no precision.json: false check-precision ended with 1")
    assert load("run/model") and not (here / "run" / "model" / "precision.json").exists()
