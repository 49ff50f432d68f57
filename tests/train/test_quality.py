import json
import subprocess

import numpy as np
import pytest
import torch
from conftest import ROOT
from PIL import Image
from test_pictures import picture, write_folder
from tiny import tiny_model

from aft_train import ModelError, export, load
from aft_train.pictures import read_pictures
from aft_train.quality import (accuracy, accuracy_of_commonest, bits_of_frequencies, bits_per_byte, bits_per_dim,
                               class_numbers, interval, measure, percent_off, picture_logits, read_data, spread,
                               temperature, windows)

TEXT = np.random.default_rng(0).integers(0, 256, 53, dtype=np.uint8)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("size", [2, 12, 13, 14, 24, 25, 53])
def test_bits_per_byte_are_the_oracles(start, size, oracle, tmp_path):
    model = tiny_model(model=dict(start_embed=start))
    export(model, tmp_path / "m", [b"a"])
    want = oracle.Model(str(tmp_path / "m")).bits_per_byte(TEXT[:size].tobytes())
    assert bits_per_byte(model, TEXT[:size]) == pytest.approx(want, rel=1e-5)


def one_by_one(model, data, first, lead_of):
    """Bits per element where element t sees data[lead_of(t):t]; by a model without start embedding."""
    bits = []
    for t in range(first, len(data)):
        with torch.no_grad():
            z = model(torch.from_numpy(data[lead_of(t) : t].copy())[None])[0, -1].double()
        bits.append(-torch.log_softmax(z, 0)[int(data[t])].item() / np.log(2))
    return np.mean(bits)


@pytest.mark.parametrize("warm", [1, 5, 11])
@pytest.mark.parametrize("before", [0, 3, 11])
def test_warm_bytes_are_scored_after_warm_ones(warm, before):
    """Windows end where the context does: each scores 13 - warm bytes and begins warm bytes before them."""
    model = tiny_model()
    first, most = before + 1, 13 - warm
    lead = lambda t: max(0, first + (t - first) // most * most - warm)
    want = one_by_one(model, TEXT, first, lead)
    assert bits_per_byte(model, TEXT, warm, before) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("warm", [0, 1, 4, 11])
@pytest.mark.parametrize("size", [1, 2, 12, 13, 40])
def test_windows_score_every_element_once(start, warm, size):
    first = 0 if start else 1
    scored = []
    for begin, target, end in windows(size, first, 12, warm, start):
        assert 0 <= begin <= target < end <= size
        assert (end if start else end - 1) - begin <= 12  # what is fed
        assert target - begin >= min(warm, target) and (start or target > begin)
        scored += range(target, end)
    assert scored == list(range(first, size))


def test_slices_of_texts_bring_their_context(tmp_path):
    (tmp_path / "text").write_bytes(TEXT.tobytes())
    config = tiny_model().config
    cold = read_data(config, tmp_path / "text", 20, 10)
    assert cold.data.tolist() == TEXT[20:30].tolist() and cold.before == 0
    warm = read_data(config, tmp_path / "text", 20, 10, warm=8)
    assert warm.data.tolist() == TEXT[12:30].tolist() and warm.before == 8
    early = read_data(config, tmp_path / "text", 5, 0, warm=8)
    assert early.data.tolist() == TEXT.tolist() and early.before == 5


def test_models_without_finite_logits_have_no_quality():
    model = tiny_model()
    with torch.no_grad():
        model.head.bias.fill_(torch.inf)
    with pytest.raises(ModelError, match="no finite probability"):
        bits_per_byte(model, TEXT)


@pytest.fixture
def collection(tmp_path):
    names = [f"{name}/{i}.png" for name in ("cat", "dog", "ship") for i in range(5)]
    return write_folder(tmp_path / "p", {name: picture(i, (12, 9)) for i, name in enumerate(names)})


def test_accuracy_counts_what_the_oracle_counts(collection, oracle, tmp_path):
    model = tiny_model("image-classification", "aft-conv", model=dict(pos_embed=False))
    export(model, tmp_path / "m", [np.zeros((8, 8, 3), np.uint8)])
    reference, pictures = oracle.Model(str(tmp_path / "m")), read_pictures(collection)
    right = [int(reference.image_logits(oracle.prepare(Image.open(f), reference.cfg)).argmax()) == label
             for f, label in zip(pictures.names, pictures.labels)]
    assert 0 < sum(right) < len(right)
    assert accuracy(model, pictures) == pytest.approx(100 * np.mean(right))
    assert accuracy(model, pictures, limit=7) == pytest.approx(100 * np.mean([right[i] for i in spread(15, 7)]))
    figure = measure(model, read_data(model.config, collection))
    assert str(figure) == f"{100 * np.mean(right):.2f} % right" and figure.on == "15 pictures"


@pytest.mark.parametrize("start", [True, False])
def test_bits_per_dim_are_the_oracles(start, collection, oracle, tmp_path):
    model = tiny_model("image-generation", model=dict(start_embed=start))
    export(model, tmp_path / "m", [b"a"])
    reference, pictures = oracle.Model(str(tmp_path / "m")), read_pictures(collection)
    cfg = {"input": {"size": [2, 2]}}
    want = np.mean([reference.bits_per_byte(oracle.prepare(Image.open(f), cfg).tobytes()) for f in pictures.names])
    assert bits_per_dim(model, pictures) == pytest.approx(want, rel=1e-5)


def test_class_folders_are_matched_by_name_or_by_order():
    labels = ["ship", "cat", "dog"]
    assert class_numbers(["cat", "dog", "ship"], labels) == [1, 2, 0]
    assert class_numbers(["dog"], labels) == [2]
    assert class_numbers(["n01", "n02", "n03"], labels) == [0, 1, 2]
    for folders, wrong in ((["cat", "dog", "n03"], "n03"), (["n01", "n02"], "n01")):
        with pytest.raises(ModelError, match=f"the class folder {wrong} is none of the model's 3 labels"):
            class_numbers(folders, labels)


def test_a_limit_spreads_over_all_classes():
    assert list(spread(10, 0)) == list(range(10)) == list(spread(10, 99))
    assert list(spread(9, 3)) == [0, 3, 6]


def test_bits_of_frequencies_are_those_of_an_order_0_code_and_of_any_length(monkeypatch):
    learnt = np.frombuffer(b"aab" * 5, np.uint8)
    p = (np.bincount(learnt, minlength=256) + 1) / (len(learnt) + 256)
    want = -np.log2([p[ord(c)] for c in "aabz"]).mean()
    data = np.frombuffer(b"aabz", np.uint8)
    assert bits_of_frequencies(learnt, data) == pytest.approx(want)
    monkeypatch.setattr("aft_train.quality.CHUNK", 4)
    assert bits_of_frequencies(learnt, data) == pytest.approx(want)


def test_the_commonest_label_is_that_of_what_was_learnt(tmp_path):
    files = {f"{label}/{i}.png": picture(i) for label, count in (("a", 2), ("b", 3)) for i in range(count)}
    learnt = read_pictures(write_folder(tmp_path / "learnt", files))
    held = read_pictures(write_folder(tmp_path / "held", {f"{label}/{i}.png": picture(i) for label, count in
                                                          (("a", 3), ("b", 1)) for i in range(count)}))
    assert accuracy_of_commonest(learnt, held) == 25


@pytest.mark.parametrize("percent, count, low, high", [
    (50, 10, 23.7, 76.3), (50, 1000, 46.9, 53.1), (0, 20, 0.0, 16.1), (100, 20, 83.9, 100.0), (60, 80, 49.0, 70.0)])
def test_an_interval_is_wilsons(percent, count, low, high):
    assert interval(percent, count) == pytest.approx((low, high), abs=0.06)


@pytest.mark.parametrize("name", ["weights/models/cifar10-aft-conv", "tests/data/models/enwik8-aft-local",
                                  "weights/models/cifar10-pixels-16"])
def test_aft_evaluate_says_the_same(name, aft, tmp_path):
    for file in sorted((ROOT / "tests" / "data" / "cifar").glob("*.jpg")):
        (tmp_path / "pictures" / file.stem).mkdir(parents=True)
        (tmp_path / "pictures" / file.stem / file.name).write_bytes(file.read_bytes())
    data = ROOT / "README.md" if "enwik8" in name else tmp_path / "pictures"
    model = load(ROOT / name)
    figure = measure(model, read_data(model.config, str(data)))
    told = subprocess.run([aft, "evaluate", str(ROOT / name), str(data), "--json", "--precision",
                           "f32"], check=True, capture_output=True).stdout
    key = {"% right": "top1_percent", "bits per byte": "bits_per_byte", "bits per dim": "bits_per_dim"}[figure.unit]
    assert json.loads(told)[key] == pytest.approx(figure.value, abs=1e-4)
    if figure.unit == "% right":
        off = percent_off(*picture_logits(model, read_pictures(str(data))))
        assert json.loads(told)["calibration_error_percent"] == pytest.approx(off, abs=1e-3)


def drawn(logits):
    """A class for each row, as likely as its logits say."""
    torch.manual_seed(1)
    return torch.multinomial(torch.softmax(logits, 1), 1)[:, 0]


@pytest.mark.parametrize("by", [0.4, 1.0, 3.0])
def test_a_temperature_makes_probabilities_what_they_say(by):
    torch.manual_seed(0)
    logits = 2 * torch.randn(20_000, 10, dtype=torch.float64)
    want = drawn(logits)
    found = temperature(by * logits, want)
    assert found == pytest.approx(by, rel=0.03)
    assert percent_off(by * logits / found, want) < 1.0
    assert by == 1 or percent_off(by * logits, want) > 4.0
    assert temperature(by * logits[:499], want[:499]) == 1.0  # too few to tell
    assert temperature(by * logits, logits.argmax(1)) == 1.0  # none is wrong


def test_a_tempered_model_says_the_same_less_surely():
    model = tiny_model("image-classification", "aft-conv")
    x = torch.randn(3, 3, *model.config.size)
    with torch.no_grad():
        before = model(x)
        model.temper(2.5)
        torch.testing.assert_close(model(x), before / 2.5)
