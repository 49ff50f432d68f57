"""Models trained again by their cards."""
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from aft_train import again, text
from aft_train.export import load

OPTIONS = ["--depth", "1", "--dim", "16", "--context", "32", "--window", "4", "--batch", "4", "--threads", "1",
           "--steps", "6", "--log-every", "2", "--evaluate-every", "100", "--train-dtype", "f32"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_bytes(b"the same words over and over, " * 400)
    monkeypatch.chdir(tmp_path / "data")
    out = tmp_path / "models" / "words"
    assert text.main(["words.txt", *OPTIONS, "--run", "run", "--out", str(out)]) == 0
    monkeypatch.chdir(tmp_path)
    return out


def run(*arguments):
    here = os.getcwd()
    try:
        return again.main([*map(str, arguments)])
    finally:
        os.chdir(here)


def test_models_are_made_again_from_their_cards(model, tmp_path, capsys):
    other = shutil.copytree(model, tmp_path / "models" / "others")
    assert run(model, other, "--data", "data", "--run", "runs") == 0
    want = load(model).state_dict()
    for name in ("words", "others"):
        got = load(tmp_path / "runs" / name / "model").state_dict()
        assert all(np.array_equal(want[tensor], got[tensor]) for tensor in want)
    said = capsys.readouterr().out
    assert said.count("| words | held out: ") == said.count("| others | held out: ") == 1
    assert "worse" not in said and "baseline" not in said


def test_what_is_worse_than_its_card_or_is_not_measured_is_told(model, capsys):
    card = (model / "README.md").read_text()
    on, (kind, value) = next(iter(again.figures_of(card).items()))
    assert kind == "bits_per_byte"
    for better, code in ((0.019, 0), (0.021, 1)):
        (model / "README.md").write_text(card.replace(f"{value:.4f} bits", f"{value - better:.4f} bits"))
        assert run(model, "--data", "data", "--run", f"runs-{code}") == code
        assert capsys.readouterr().out.count("**worse**") == code
    (model / "README.md").write_text(card.replace(on, "another thing"))
    assert run(model, "--data", "data", "--run", "runs-0") == 1
    assert "| words | another thing | " in (said := capsys.readouterr().out) and "| not measured |" in said


@pytest.mark.parametrize("changed, wanted", [
    ("# words\n", "README.md has no section Training"),
    ("\n## Training\n\nBy hand.\n", "README.md has no command under Training"),
    ("\n## Training\n\n    cp a b\n", "README.md has cp a b under Training, expected aft-train"),
    ("\n## Training\n\n    python -m aft_train.loop a\n", "README.md has python -m aft_train.loop a under Training"),
    ("\n## Training\n\n    aft-train text a\n\n## Quality\n\n| a | 3 |\n", "README.md has no figure under Quality"),
    (None, "No such file or directory")])
def test_a_card_that_does_not_say_how_is_refused(model, changed, wanted, capsys):
    if changed:
        (model / "README.md").write_text(changed)
    else:
        (model / "README.md").unlink()
    assert run(model, "--data", "data", "--run", "runs") == 2
    assert wanted in capsys.readouterr().err


def test_what_cannot_be_begun_is_told_before_anything_is_trained(model, capsys):
    assert run(model, "--data", "nowhere", "--run", "runs") == 2
    assert "nowhere" in capsys.readouterr().err
    assert run(model, model, "--data", "data", "--run", "runs") == 2
    assert "a second model of this name" in capsys.readouterr().err and not os.path.exists("runs")


def test_cards_of_before_name_modules(model):
    card = (model / "README.md").read_text()
    assert "python -m aft_train.text words.txt" in card
    arguments = ["text", "words.txt", *OPTIONS, "--run", "run", "--out", str(model)]
    assert again.commands_of(card) == [arguments]
    assert again.commands_of(card.replace("python -m aft_train.text", "aft-train text")) == [arguments]


def test_teachers_are_made_before_those_they_taught_or_taken_as_they_are(model, tmp_path, monkeypatch):
    """A card whose model learnt from two others: one that its first command makes, one that lies beside it."""
    monkeypatch.chdir(tmp_path / "data")
    assert text.main(["words.txt", *OPTIONS, "--seed", "1", "--run", "first"]) == 0
    taught = ["words.txt", *OPTIONS, "--seed", "2", "--teacher", "first/model", "../models/words", "--run", "second"]
    assert text.main([*taught, "--out", str(tmp_path / "models" / "taught")]) == 0
    monkeypatch.chdir(tmp_path)
    card = tmp_path / "models" / "taught" / "README.md"
    first = f"    aft-train text words.txt {' '.join(OPTIONS)} --seed 1 --run first\n"
    card.write_text(card.read_text().replace("    python -m", first + "    python -m", 1)
                    .replace("../models/words", "models/words"))
    shutil.rmtree(tmp_path / "data" / "first")
    assert run(card.parent, "--data", "data", "--run", "runs") == 0
    want, got = (load(folder).state_dict() for folder in (card.parent, tmp_path / "runs" / "taught" / "model"))
    assert all(np.array_equal(want[tensor], got[tensor]) for tensor in want)


def test_what_a_run_begins_from_is_where_it_was_made_or_lies():
    commands = [["pictures", "x", "--run", "a"], ["pictures", "x", "--init", "a/model", "--run", "b"],
                ["pictures", "x", "--init", "models/z", "--out", "m"]]
    folder, here = Path("/runs/m"), Path("/here")
    assert again.planned(commands, folder, here, "again") == [
        (["pictures", "x"], folder / "before-1"),
        (["pictures", "x", "--init", "/runs/m/before-1/model"], folder / "before-2"),
        (["pictures", "x", "--init", "/here/models/z"], folder)]
