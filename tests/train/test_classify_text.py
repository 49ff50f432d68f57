import json
import subprocess

import numpy as np
import pytest
import torch
from tiny import tiny_model

from aft_train import classify_text, load
from aft_train.check import check
from aft_train.model_config import MIXERS, POOLINGS
from aft_train.quality import text_accuracy
from aft_train.texts import CorpusError, epoch_batches, even_order, padded, read_texts

TINY = ["--depth", "1", "--dim", "16", "--context", "64", "--batch", "8", "--threads", "1", "--warmup", "5",
        "--steps", "40", "--log-every", "20", "--evaluate-every", "40", "--train-dtype", "f32", "--lr", "1e-2"]
LETTERS = {"early": b"abcdefg", "late": b"tuvwxyz"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """60 texts of 3 to 79 letters with each of two labels, some of them deeper."""
    path, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(1)
    for label, letters in LETTERS.items():
        for i in range(60):
            file = path / label / ("deeper" if i % 3 == 0 else ".") / f"{i}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(rng.choice(list(letters), rng.integers(3, 80)).tolist()))
    return path


def refusal(capsys, *arguments):
    """The one line that a wrong command line gets, with exit code 2."""
    capsys.readouterr()
    assert classify_text.main([str(a) for a in arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("aft_train.classify_text: "), lines
    return lines[-1]


# ---- padding ---------------------------------------------------------------------------------------------------------


ABLATIONS = [("aft-local", dict(global_sum=False, window=2)), ("aft-conv", dict(global_sum=False, kernel=(3,))),
             ("fastformer", dict(share_value_query=True)), ("sima", dict(norm="l2")), ("sima", dict(norm="none")),
             ("simple-attention", dict(scale=False))]


def compare_with_each_alone(model):
    """What a model gives padded texts, of which each gets what it gets alone."""
    rng = np.random.default_rng(2)
    texts = [rng.integers(0, 256, n, dtype=np.uint8) for n in (3, 11, 1, 7)]
    x, lengths = padded(texts)
    for i, text in enumerate(texts):
        x[i, len(text) :] = torch.from_numpy(rng.integers(0, 256, x.shape[1] - len(text), dtype=np.uint8))
    together = model(x, lengths)
    for i, text in enumerate(texts):
        torch.testing.assert_close(together[i], model(torch.from_numpy(text)[None])[0], atol=2e-5, rtol=2e-5)
    return together


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mixer, more", [*((mixer, {}) for mixer in MIXERS), *ABLATIONS], ids=str)
def test_what_is_beyond_a_texts_end_changes_nothing(mixer, more, pooling):
    model = tiny_model("text-classification", mixer, pooling=pooling, context=12, **more)
    with torch.no_grad():
        compare_with_each_alone(model)
    compare_with_each_alone(model).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("mixer, more", [("aft-full", {}), *ABLATIONS[:2]], ids=str)
@pytest.mark.parametrize("keys", [100, 9000], ids=["in float64", "one by one"])
def test_nor_does_it_where_keys_are_large(mixer, more, keys):
    model = tiny_model("text-classification", mixer, context=12, **more)
    with torch.no_grad():
        for block in model.blocks:
            block.mixer.k.weight *= keys
        compare_with_each_alone(model)


# ---- data ------------------------------------------------------------------------------------------------------------


def test_folders_are_labels_at_any_depth(folder):
    texts = read_texts(folder)
    assert texts.classes == ["early", "late"] and len(texts) == 120 and texts.labels.count(0) == 60
    assert all(set(t.tobytes()) <= set(LETTERS[texts.classes[c]]) for t, c in zip(texts.texts, texts.labels))


@pytest.mark.parametrize("name, content, columns", [
    ("t.csv", 'text,label\n"a, ""b""",one\nc,2\n', ("text", "label")),
    ("t.tsv", 'Target\tSource\none\ta, "b"\n2\tc\n', ("Source", "Target")),
    ("t.jsonl", '{"text": "a, \\"b\\"", "label": "one"}\n\n{"label": 2, "text": "c", "more": []}\n',
     ("text", "label"))])
def test_tables_have_a_text_and_a_label_in_each_row(name, content, columns, tmp_path):
    (tmp_path / name).write_text(content)
    texts = read_texts(tmp_path / name, columns)
    assert texts.classes == ["2", "one"] and texts.labels == [1, 0]
    assert [t.tobytes() for t in texts.texts] == [b'a, "b"', b"c"]


@pytest.mark.parametrize("name, content, wanted", [
    ("t.txt", "x", "is no folder of folders of texts"), ("t.csv", "text,tag\na,b\n", "row 1 has not all of"),
    ("t.jsonl", '{"text": 1.5, "label": "a"}\n', "row 1 has not all of"),
    ("t.jsonl", '{"text": "a", "label": "a"}\n{\n', "row 2 has not all of"),
    ("t.csv", "text,label\n", "has no texts with labels")])
def test_tables_that_cannot_be_used_are_named(name, content, wanted, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=wanted):
        read_texts(tmp_path / name)


def test_two_texts_that_are_to_be_matched_are_joined(tmp_path, capsys):
    """Simpletron, section 4.1, as one text. What is longer than half of what the model sees is cut in each, between
    characters."""
    (tmp_path / "t.tsv").write_text("one\tother\tlabel\nabcdef\tgh\tsame\nabcä\tä\tsame\n")
    texts = read_texts(tmp_path / "t.tsv", ("one", "other", "label"), half=4)
    assert texts.classes == ["same"]
    assert [text.tobytes().decode() for text in texts.texts] == ["abcd\x1egh", "abc\x1eä"]
    assert capsys.readouterr().err.endswith("of 2 pairs a text has more than 4 bytes: only so many are seen\n")
    with pytest.raises(CorpusError, match="is a folder, expected a table with the columns one, other, label"):
        read_texts(tmp_path, ("one", "other", "label"), half=4)


def test_pairs_of_texts_are_told_apart(tmp_path, aft):
    """Whether two texts begin with the same letter, which neither says alone."""
    rng = np.random.default_rng(5)
    rows = [(a, b, int(a[0] == b[0])) for a, b in (("".join(rng.choice(list("ab"), 2)) for _ in range(2))
                                                   for _ in range(400))]
    (tmp_path / "t.csv").write_text("a,b,same\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    more = ["--columns", "a,b,same", "--mixer", "simple-attention", "--context", "16", "--depth", "2", "--dim", "32",
            "--batch", "16", "--steps", "300", "--lr", "3e-3", "--dropout", "0"]
    assert classify_text.main([str(tmp_path / "t.csv"), *TINY, *more, "--run", str(tmp_path / "run")]) == 0
    told = subprocess.run([aft, "classify", str(tmp_path / "run" / "model"), "-"], input=b"ab\x1eaa", check=True,
                          capture_output=True)
    assert told.stdout.split()[1] == b"1" and float(told.stdout.split()[0]) > 0.9
    assert classify_text.main([str(tmp_path), *TINY, "--columns", "a,b,same", "--run", str(tmp_path / "r")]) == 2


def test_a_label_that_was_not_learnt_is_named(folder, tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,early\nb,never\n")
    with pytest.raises(CorpusError, match="has the label never, expected one of early, late"):
        read_texts(tmp_path / "t.csv", classes=["early", "late"])


def test_an_epochs_batches_have_every_text_once_and_lengths_alike():
    lengths, rng = np.random.default_rng(3).integers(1, 1000, 1003), np.random.default_rng(4)
    batches = epoch_batches(lengths, 10, rng)
    assert sorted(batches.flatten().tolist()) == sorted(set(batches.flatten().tolist())) and batches.shape == (100, 10)
    spans = [lengths[b].max() - lengths[b].min() for b in batches]
    assert np.median(spans) < 100
    # Those that fill no batch are others each time, however long they are.
    assert {i for _ in range(9) for i in epoch_batches(lengths[:103], 10, rng).flatten().tolist()} == set(range(103))


def test_even_labels_come_alike_often_and_no_text_much_oftener_than_another_of_its_label():
    labels = np.repeat([0, 1, 2], [5, 40, 301])
    order = even_order(labels, np.random.default_rng(5))
    assert len(order) == 346
    assert sorted(np.bincount(labels[order])) in ([114, 116, 116], [115, 115, 116])
    times = np.bincount(order, minlength=346)
    assert set(times[:5]) <= {22, 23, 24} and set(times[5:45]) <= {2, 3} and set(times[45:]) == {0, 1}
    batches = epoch_batches(np.arange(346), 8, np.random.default_rng(6), order)
    assert sorted(batches.flatten().tolist()) == sorted(order[:344].tolist())


def test_parts_of_texts_are_as_long_as_their_share_says():
    """Sizes of a batch's texts, which are of about one length, stay so."""
    text, rng = np.arange(100, dtype=np.uint8), np.random.default_rng(1)
    parts = [classify_text.seen(text, 64, 4, share, rng) for share in (0, 0.5, 1, 1)]
    assert [len(part) for part in parts] == [4, 16, 64, 64]
    assert all((np.diff(part) == 1).all() for part in parts) and parts[2][0] != parts[3][0]
    assert len(classify_text.seen(text[:3], 64, 4, 0.5, rng)) == 3
    assert classify_text.seen(text, 64, 0, 0.5, rng).tolist() == list(range(64))


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    [], ["--mixer", "simple-attention", "--no-scale", "--pooling", "mean"], ["--mixer", "sima", "--norm", "l2"],
    ["--mixer", "sima", "--norm", "none"], ["--mixer", "aft-conv", "--pooling", "class-token"],
    ["--mixer", "aft-simple"],
    ["--share-value-query", "--share-layers", "--depth", "2"],
    ["--mixer", "attention", "--crop", "5", "--even-labels"]],
    ids=lambda options: " ".join(options) or "fastformer")
def test_letters_are_told_apart_and_served(options, folder, tmp_path, aft):
    assert classify_text.main([str(folder), *TINY, *options, "--run", str(tmp_path / "run")]) == 0
    model = tmp_path / "run" / "model"
    right = float((model / "README.md").read_text().split("held out: 12 texts | ")[1].split()[0])
    assert right >= 90
    assert check(model)[0] < 1e-5
    subprocess.run([aft, "verify", str(model)], check=True, stdout=subprocess.DEVNULL)
    told = subprocess.run([aft, "evaluate", str(model), str(folder), "--json", "--precision", "f32"], check=True,
                          capture_output=True)
    assert json.loads(told.stdout)["top1_percent"] == pytest.approx(text_accuracy(load(model), read_texts(folder)))


def test_a_run_is_watched_with_every_label(folder, tmp_path, monkeypatch):
    """Of --valid, which is in the order of labels, with fewer than one of them has."""
    watched, measure = [], text_accuracy
    monkeypatch.setattr(classify_text.quality, "text_accuracy",
                        lambda model, texts: watched.append(texts.labels) or measure(model, texts))
    assert classify_text.main([str(folder), *TINY, "--valid", str(folder), "--valid-limit", "10", "--run",
                               str(tmp_path / "run")]) == 0
    assert watched[0] == [0] * 5 + [1] * 5


def test_a_head_of_other_labels_is_made_anew(folder, tmp_path, capsys):
    assert classify_text.main([str(folder), *TINY, "--run", str(tmp_path / "run")]) == 0
    for old, new in (("early", "zebra"), ("late", "bee")):
        (tmp_path / "others" / new).parent.mkdir(exist_ok=True)
        (tmp_path / "others" / new).symlink_to(folder / old)
    more = ["--steps", "1", "--init", str(tmp_path / "run" / "model"), "--freeze", "fc1"]
    assert classify_text.main([str(tmp_path / "others"), *TINY, *more, "--run", str(tmp_path / "next")]) == 0
    before, after = (load(tmp_path / run / "model").state_dict() for run in ("run", "next"))
    assert torch.equal(before["blocks.0.mlp.fc1.weight"], after["blocks.0.mlp.fc1.weight"])
    assert (before["head.weight"] - after["head.weight"]).abs().max() > 0.02
    assert f"{len(before) - 2} of {len(before)} tensors are those of" in capsys.readouterr().err
    more[-1] = "head"
    assert "head.weight is not among what --init gives" in refusal(capsys, tmp_path / "others", *TINY, *more, "--run",
                                                                   tmp_path / "frozen")
    more[-2:] = ["--dim", "32"]
    assert "has dim 16, expected 32" in refusal(capsys, folder, *TINY, *more, "--run", tmp_path / "wide")
    more[-2:] = ["--mixer", "aft-conv", "--one-tap"]
    assert "--one-tap learns kernels of its own" in refusal(capsys, folder, *TINY, *more, "--run", tmp_path / "tap")


def test_what_bf16_and_int8_cost_is_measured_on_texts(folder, tmp_path, aft):
    assert classify_text.main([str(folder), *TINY, "--aft", str(aft), "--run", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "model" / "precision.json").read_text())["samples"] == 12


def test_a_softmax_model_learns_from_the_frozen_projections_of_another(folder, tmp_path):
    """Simpletron, section 4.2."""
    first, second = tmp_path / "simple", tmp_path / "softmax"
    more = ["--mixer", "simple-attention", "--ema", "0"]
    assert classify_text.main([str(folder), *TINY, *more, "--run", str(first)]) == 0
    assert classify_text.main([str(folder), *TINY, "--mixer", "attention", "--ema", "0", "--freeze", "q,k,v",
                               "--init", str(first / "model"), "--run", str(second)]) == 0
    one, other = (load(run / "model").state_dict() for run in (first, second))
    for name, p in other.items():
        frozen = any(part in name.split(".") for part in "qkv")
        assert name not in one or torch.equal(p, one[name]) == frozen, name
    assert json.loads((second / "run.json").read_text())["freeze"] == "q,k,v"


@pytest.mark.parametrize("wrong, wanted", [
    (["--valid-limit", "0"], "--valid-limit is 0, expected 1 or more"),
    (["--crop", "65"], "--crop is 65, expected 0 to 64"), (["--dropout", "1"], "--dropout is 1, expected 0 to 1"),
    (["--context", "1", "--pooling", "class-token"], "--context is 1, expected 2 or more"),
    (["--freeze", "q"], "--freeze q: blocks.0.mixer.q.weight is not among what --init gives"),
    (["--mixer", "aft-full", "--rank", "-1"], "--rank is -1, expected 0 or more"),
    (["--schedule", "root", "--decay", "0.5"], "--decay 0.5 is of a line"),
    (["--aft", "/nowhere"], "--aft /nowhere is no program"),
    (["--columns", "text"], "--columns is text, expected two names, TEXT,LABEL, or three"),
    (["--freeze", "w"], "--freeze w: no tensor"),
    (["--context", "0"], "input.context is 0"), (["--batch", "1000"], "has 108 texts to learn, fewer than a batch"),
    (["--init", "weights/models/cifar10-sima"], "is for image-classification"),
    (["--mixer", "aft-conv", "--norm", "l2"], "--norm l2 is for sima, not for aft-conv")])
def test_options_that_contradict_are_refused(wrong, wanted, folder, tmp_path, capsys):
    assert wanted in refusal(capsys, folder, *TINY, *wrong, "--run", tmp_path / "run")


def test_one_label_is_nothing_to_tell_apart(folder, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("text,label\n" + "a,b\n" * 30)
    assert "has the label b alone" in refusal(capsys, tmp_path / "t.csv", *TINY, "--run", tmp_path / "run")
