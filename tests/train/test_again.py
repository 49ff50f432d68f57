"""Models trained again by their cards."""
import os

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


def test_a_model_is_made_again_from_its_card(model, tmp_path, capsys):
    assert run(model, "--data", "data", "--run", "runs") == 0
    one, other = (load(path).state_dict() for path in (model, tmp_path / "runs" / "words" / "model"))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    said = capsys.readouterr().out
    assert said.count("| words | held out: ") == 1 and "worse" not in said and "baseline" not in said


def test_what_is_worse_than_its_card_is_told(model, capsys):
    card = (model / "README.md").read_text()
    kind, value = next(iter(again.figures_of(card).values()))
    assert kind == "bits_per_byte"
    for better, code in ((0.019, 0), (0.021, 1)):
        (model / "README.md").write_text(card.replace(f"{value:.4f} bits", f"{value - better:.4f} bits"))
        assert run(model, "--data", "data", "--run", f"runs-{code}") == code
        assert capsys.readouterr().out.count("**worse**") == code


@pytest.mark.parametrize("changed, wanted", [
    ("# words\n", "has no section Training"), ("\n## Training\n\n    cp a b\n", "has no command under Training"),
    (None, "No such file or directory")])
def test_a_card_that_does_not_say_how_is_refused(model, changed, wanted, capsys):
    if changed:
        (model / "README.md").write_text(changed)
    else:
        (model / "README.md").unlink()
    assert run(model, "--data", "data", "--run", "runs") == 2
    assert wanted in capsys.readouterr().err


def test_cards_of_before_name_modules(model):
    card = (model / "README.md").read_text()
    assert "python -m aft_train.text words.txt" in card
    assert again.command_of(card) == ("text", ["words.txt", *OPTIONS, "--run", "run", "--out", str(model)])
    verb = card.replace("python -m aft_train.text", "aft-train text")
    assert again.command_of(verb)[0] == "text"
