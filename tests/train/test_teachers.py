import signal

import numpy as np
import pytest
import torch
from interrupt import interrupted, rows
from tiny import tiny_model

from aft_train import export, load, teachers, text
from aft_train.quality import bits_per_byte
from aft_train.recipe import TrainError

TINY = ["--depth", "1", "--dim", "16", "--context", "16", "--batch", "4", "--threads", "1", "--warmup", "5", "--lr",
        "3e-2", "--log-every", "2", "--evaluate-every", "20", "--save-every", "7", "--train-dtype", "f32", "--dropout",
        "0.1"]
LOCAL = [*TINY, "--window", "4"]
CONV = [*TINY, "--mixer", "aft-conv", "--heads", "16", "--kernel", "4", "--no-global-sum", "--no-pos-embed"]
TEXT = np.random.default_rng(5).integers(97, 101, 1500).astype(np.uint8)
TEXT = np.where(np.arange(1500) % 3, np.roll(TEXT, 1), TEXT)  # so that a byte tells of the next


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """(a file, two models of it)"""
    folder = tmp_path_factory.mktemp("taught")
    (folder / "text").write_bytes(TEXT.tobytes())
    for name, shape in ("local", LOCAL), ("conv", CONV):
        assert text.main([str(folder / "text"), *shape, "--steps", "30", "--run", str(folder / name)]) == 0
    return str(folder / "text"), [str(folder / name / "model") for name in ("local", "conv")]


def said(folder, models):
    return teachers.said(folder / "taught.f16", models, TEXT)


def test_what_is_said_of_a_byte_is_what_a_model_gives_it_after_half_its_context(learnt, tmp_path):
    for i, folder in enumerate(learnt[1]):
        (tmp_path / str(i)).mkdir()
        models = teachers.load([folder])
        words = said(tmp_path / str(i), models)[1:].astype(np.float64)
        assert words.shape == (1499, 256) and words.sum(1) == pytest.approx(1, abs=0.01)
        bits = -np.log2(words[np.arange(1499), TEXT[1:]]).mean()
        assert bits == pytest.approx(bits_per_byte(models[folder], TEXT, warm=8), abs=2e-4)
        assert abs(bits - bits_per_byte(models[folder], TEXT)) > 2e-4  # from scratch


def test_several_models_say_the_mean_of_their_probabilities(learnt, tmp_path):
    each = []
    for i, folder in enumerate(learnt[1]):
        (tmp_path / str(i)).mkdir()
        each.append(said(tmp_path / str(i), teachers.load([folder])).astype(np.float64))
    both = said(tmp_path, teachers.load(learnt[1])).astype(np.float64)
    assert np.abs(each[0] - each[1]).max() > 0.01
    np.testing.assert_allclose(both[1:], (each[0] + each[1])[1:] / 2, atol=1e-3)


def test_runs_models_are_called_as_their_runs_are():
    assert teachers.named(["runs/text/model", "../models/words/"]) == "text and words"


def test_a_byte_counts_as_much_as_what_is_said_of_it():
    words = torch.full((1, 2, 256), 1 / 256, dtype=torch.float16)
    want = teachers.targets(torch.tensor([[7, 9]]), words)
    assert want[0, :, 7].tolist() == [0.5 + 1 / 512, 1 / 512] and want.sum(2).tolist() == [[1, 1]]


def test_what_others_say_is_learnt_beyond_the_text(learnt, tmp_path):
    """A teacher that holds other letters for likely gives them to a student that never saw them."""
    other = tmp_path / "other"
    other.write_bytes((TEXT + 10).tobytes())
    assert text.main([str(other), *LOCAL, "--steps", "60", "--run", str(tmp_path / "run")]) == 0
    options = [*CONV, "--dropout", "0", "--steps", "60", "--teacher", str(tmp_path / "run" / "model")]
    assert text.main([learnt[0], *options, "--run", str(tmp_path / "taught")]) == 0
    words = said(tmp_path, {"taught": load(tmp_path / "taught" / "model")})[1:].astype(np.float64)
    assert words[:, 97:101].sum(1).mean() == pytest.approx(0.5, abs=0.1)
    assert words[:, 107:111].sum(1).mean() == pytest.approx(0.5, abs=0.1)
    card = (tmp_path / "taught" / "model" / "README.md").read_text()
    assert "1,350 of text; 3,840 bytes seen. Half of what was learnt of each is what run said of it." in card


def test_a_run_that_was_killed_goes_on_with_what_was_said_before(learnt, tmp_path, monkeypatch):
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    options = [learnt[0], *CONV, "--decay", "0", "--teacher", *learnt[1]]
    with monkeypatch.context() as m:
        m.setattr(teachers, "ask", lambda *_: pytest.fail("the teachers are asked again"))
        steps, story = interrupted("text", text.main, options, parts, [signal.SIGKILL, signal.SIGTERM])
    assert text.main([*options, "--steps", str(steps), "--run", str(whole)]) == 0
    assert rows(parts) == rows(whole) and len(rows(whole)) >= steps // 2, story


def test_other_teachers_are_another_run(learnt, tmp_path, capsys):
    run = ["--steps", "8", "--run", str(tmp_path)]
    assert text.main([learnt[0], *CONV, *run, "--teacher", learnt[1][0]]) == 0
    assert text.main([learnt[0], *CONV, *run, "--teacher", learnt[1][1]]) == 2
    assert "holds a run with teachers" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("taught*")] == ["taught.f16"]
    assert text.main([learnt[0], *CONV, *run]) == 2
    assert "holds a run with teachers" in capsys.readouterr().err


def test_only_models_of_text_teach(learnt, tmp_path, capsys):
    export(tiny_model("image-classification"), tmp_path / "sees", [np.zeros((8, 8, 3), np.uint8)])
    for folder, said in (tmp_path / "missing", "missing"), (tmp_path / "sees", "is for image-classification"):
        assert text.main([learnt[0], *CONV, "--steps", "2", "--run", str(tmp_path / "run"), "--teacher",
                          str(folder)]) == 2
        assert said in capsys.readouterr().err


def test_a_disk_without_room_is_named(learnt, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(teachers.os, "posix_fallocate", full)
    with pytest.raises(TrainError, match=r"taught.f16.tmp: No space left on device: .* 1,500 bytes takes 0.0 GB"):
        said(tmp_path, teachers.load(learnt[1][:1]))
    assert not list(tmp_path.iterdir())


def test_a_teacher_that_overflows_is_named(learnt, tmp_path):
    models = teachers.load(learnt[1])
    with torch.no_grad():
        models[learnt[1][1]].head.weight.fill_(1e38)
    with pytest.raises(TrainError, match=r"conv/model gives no finite probability"):
        said(tmp_path, models)
    assert not list(tmp_path.iterdir())
