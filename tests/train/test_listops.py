"""ListOps and what compares mixers on it."""
import random
import subprocess

import pytest

from aft_train import compare, listops
from aft_train.texts import read_texts

SMALL = ["--train", "40", "--valid", "10", "--test", "10", "--shortest", "3", "--longest", "30", "--depth", "4"]


def value(text):
    """The value of an expression, read from its end: what a generator that draws from the front does not share."""
    stack = []
    for c in reversed(text):
        if c.isdigit():
            stack.append(int(c))
        elif c == "]":
            stack.append(None)
        else:
            values = []
            while (top := stack.pop()) is not None:
                values.append(top)
            values.sort()
            middle = len(values) // 2
            median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
            stack.append({">": values[-1], "<": values[0], "+": sum(values) % 10, "|": median}[c])
    assert len(stack) == 1
    return stack[0]


def test_labels_are_the_values_and_no_expression_is_there_twice(tmp_path):
    assert listops.main([str(tmp_path / "l"), *SMALL]) == 0
    all_texts = []
    for name, count in (("train", 40), ("valid", 10), ("test", 10)):
        texts = read_texts(tmp_path / "l" / f"{name}.jsonl")
        assert len(texts) == count
        for text, label in zip(texts.texts, texts.labels):
            text = text.tobytes().decode()
            assert 3 < len(text) < 30 and value(text) == int(texts.classes[label])
            all_texts.append(text)
    assert len(set(all_texts)) == 60 and {c for text in all_texts for c in text} >= set("><|+]")


def test_the_same_seed_writes_the_same():
    one, other = (list(listops.expressions(random.Random(3), 5, 50, 200, 10, 10, set())) for _ in range(2))
    assert one == other and one != list(listops.expressions(random.Random(4), 5, 50, 200, 10, 10, set()))


def test_what_is_too_long_is_given_up_at_once():
    """Where each level has 13 times what the one above has, one expression in a hundred may have any size."""
    for text, answer in listops.expressions(random.Random(0), 20, 20, 100, 500, 100, set()):
        assert 20 < len(text) < 100 and value(text) == answer


@pytest.mark.parametrize("wrong, wanted", [
    (["--longest", "501"], "--longest is 501, expected 502 or more"),
    (["--arguments", "1"], "--arguments is 1, expected 2"),
    (["--depth", "501"], "--depth is 501, expected 500 at most"),
    (["--depth", "1"], "--depth is 1, expected 2"), (["--test", "-1"], "--test is -1, expected 0"),
    (["--depth", "2"], "of 1,000,000 expressions of --depth 2 none was another")])
def test_what_cannot_be_written_is_refused(wrong, wanted, tmp_path, capsys):
    assert listops.main([str(tmp_path / "l"), *wrong]) == 2
    assert wanted in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_arenas_sizes_have_every_operator(tmp_path):
    assert listops.main([str(tmp_path / "l"), "--train", "12", "--valid", "0", "--test", "0"]) == 0
    texts = [text.tobytes().decode() for text in read_texts(tmp_path / "l" / "train.jsonl").texts]
    assert all(500 < len(text) < 2000 and set("><|+]") <= set(text) for text in texts)


def test_a_folder_that_is_there_stays_as_it_is(tmp_path, capsys):
    assert listops.main([str(tmp_path), *SMALL]) == 2
    assert "exists, expected a new name" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_mixers_are_compared_in_a_table_and_curves(tmp_path, capsys, aft):
    assert listops.main([str(tmp_path / "l"), *SMALL]) == 0
    arguments = [str(tmp_path / "l" / "train.jsonl"), "--test", str(tmp_path / "l" / "test.jsonl"), "--depth", "1",
                 "--dim", "8", "--heads", "2", "--context", "32", "--batch", "4", "--steps", "4",
                 "--evaluate-every", "2", "--log-every", "2", "--threads", "1", "--train-dtype", "f32",
                 "--run", str(tmp_path / "runs")]
    assert compare.main([*arguments, "--mixers", "attention,simple-attention"]) == 0
    told = (tmp_path / "runs" / "README.md").read_text().splitlines()
    assert "python -m aft_train.classify_text" in (tmp_path / "runs/attention/model/README.md").read_text()
    rows = [line.split(" | ") for line in told if line.startswith(("| attention", "| simple-attention"))]
    assert [row[0] for row in rows] == ["| attention", "| simple-attention"]
    assert all(sum("% right" in cell for cell in row) == 3 for row in rows)  # held out, test, baseline
    assert (tmp_path / "runs" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    subprocess.run([aft, "evaluate", tmp_path / "runs/attention/model", tmp_path / "l" / "test.jsonl"], check=True)
    before = (tmp_path / "runs" / "attention" / "checkpoint.pt").stat().st_mtime_ns
    assert compare.main([*arguments, "--mixers", "attention,simple-attention"]) == 0
    assert (tmp_path / "runs" / "attention" / "checkpoint.pt").stat().st_mtime_ns == before
    few = ["--mixers", "attention,simple-attention"]
    for changed, wanted in ((arguments[:-2], "expected --run FOLDER"),
                            ([*arguments, *few, "--dim", "16"], "holds a run with"),
                            ([*arguments, "--mixers", "attention,foo"], "--mixers has foo"),
                            (arguments, "--heads 2 is for aft-conv")):
        assert compare.main(changed) == 2 and wanted in capsys.readouterr().err
    assert not (tmp_path / "runs" / "sima").exists()  # --heads was refused before any was trained
