import signal
import tarfile

import numpy as np
import pytest
from interrupt import interrupted, rows
from PIL import Image
from tiny import tiny_config

from aft_train import load, pixels
from aft_train.loop import Recipe
from aft_train.model_config import MixerConfig, ModelConfig
from aft_train.pictures import PictureError, read_pictures
from aft_train.quality import bits_per_element

TINY = ["--size", "4", "--depth", "1", "--dim", "16", "--kernel", "12", "--heads", "4", "--batch", "4",
        "--threads", "1", "--warmup", "5", "--steps", "100", "--log-every", "2", "--evaluate-every", "25",
        "--save-every", "7", "--train-dtype", "f32"]


def write(folder, count, make, classes=("cat", "dog")):
    """PNGs make(i), uint8 [H, W, 3], in class folders. -> folder"""
    for i in range(count):
        at = folder / classes[i % len(classes)]
        at.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make(i)).save(at / f"{i:03}.png")
    return folder


def grey(i):
    """A picture of one of four greys: nothing is left to learn behind its first sub-pixel."""
    return np.full((4, 4, 3), i % 4 * 85, np.uint8)


def noise(i):
    return np.random.default_rng(i).integers(0, 256, (4, 4, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    """A folder with the parts train, of 12 pictures, and test, of 5."""
    write(tmp_path / "pictures" / "train", 12, noise)
    write(tmp_path / "pictures" / "test", 5, lambda i: noise(100 + i))
    return tmp_path / "pictures"


def names(pictures, numbers):
    return [pictures.names[i] for i in numbers]


def refusal(capsys, *arguments):
    """The last line that a wrong command line gets, with exit code 2."""
    capsys.readouterr()
    assert pixels.main(list(map(str, arguments))) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    line = err.splitlines()[-1]
    assert line.startswith("aft_train.pixels: ")
    return line


# ---- what is learnt --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_the_parts_train_and_test_are_found(folder, packed, tmp_path):
    path = folder
    if packed:
        path = tmp_path / "pictures.tar.xz"
        with tarfile.open(path, "w:xz") as tar:
            tar.add(folder, "anything")
    pictures, numbers, held, held_numbers = pixels.choose(path, None, None)
    assert sorted(numbers) == list(range(12)) and all("/train/" in name for name in pictures.names)
    assert sorted(held_numbers) == list(range(5)) and all("/test/" in name for name in held.names)


def test_parts_have_the_names_that_are_given(folder):
    pictures, numbers, held, held_numbers = pixels.choose(folder, "test", "train")
    assert len(numbers) == 5 and "/test/" in pictures.names[0]
    assert len(held_numbers) == 12 and "/train/" in held.names[0]
    with pytest.raises(PictureError, match="nowhere"):
        pixels.choose(folder, "nowhere", None)


def test_without_parts_a_tenth_is_held_out_always_the_same(tmp_path):
    folder = write(tmp_path / "plain", 30, noise)
    pictures, numbers, held, held_numbers = pixels.choose(folder, None, None)
    learnt, kept = names(pictures, numbers), names(held, held_numbers)
    assert len(learnt) == 27 and len(kept) == 3 and len(set(learnt + kept)) == 30
    assert {name.split("/")[-2] for name in learnt} == {"cat", "dog"}
    again = pixels.choose(folder, None, None)
    assert names(again[0], again[1]) == learnt and names(again[2], again[3]) == kept
    assert kept != sorted(pictures.names)[-3:]


def test_sub_pixels_are_row_by_row_with_the_colours_interleaved(tmp_path):
    folder = write(tmp_path / "p", 3, noise)
    config = ModelConfig("image-generation", dim=8, depth=1, mixer=MixerConfig("aft-simple"), size=(4, 4), context=48)
    x = pixels.sub_pixels(read_pictures(folder), [2, 0], config)  # in the order of class, then file: 0 2 1
    for row, i in zip(x, [1, 0]):
        want = [noise(i)[y, x, c] for y in range(4) for x in range(4) for c in range(3)]
        assert row.dtype == np.uint8 and row.tolist() == want


def test_larger_pictures_are_resized_and_cut_to_their_middle(tmp_path):
    big = np.zeros((8, 20, 3), np.uint8)
    big[:, 6:14] = np.arange(8, dtype=np.uint8)[:, None, None] // 2 * 50  # the middle square
    big[:, 6:10, 1] += 9
    folder = write(tmp_path / "p", 1, lambda i: big)
    config = tiny_config("image-generation")  # 2 x 2
    got = pixels.sub_pixels(read_pictures(folder), [0], config).reshape(2, 2, 3)
    want = Image.fromarray(big).resize((5, 2), Image.Resampling.BICUBIC).crop((2, 0, 4, 2))
    assert got.tolist() == np.array(want).tolist()


def test_every_epoch_has_every_picture_once():
    recipe = Recipe(steps=1, batch=4, lr=1.0, seed=5)
    chosen = np.concatenate([pixels.picked(recipe, step, 10) for step in range(15)])  # 6 epochs, some ends amid a batch
    epochs = chosen.reshape(6, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    assert pixels.picked(recipe, 7, 10).tolist() == chosen[28:32].tolist()
    other = Recipe(steps=1, batch=4, lr=1.0, seed=6)
    assert np.concatenate([pixels.picked(other, step, 10) for step in range(15)]).tolist() != chosen.tolist()
    assert sorted(pixels.picked(recipe, 0, 2)) == [0, 0, 1, 1]


def test_pictures_are_mirrored_and_brightened_and_nothing_else():
    x = np.random.default_rng(0).integers(0, 256, (200, 3, 4, 3), dtype=np.uint8)
    before = x.copy()
    rng = lambda: np.random.default_rng(1)
    assert (pixels.augment(x, rng(), False, 0) == x).all()
    y = pixels.augment(x, rng(), True, 0)
    kept, mirrored = ((y == want).all((1, 2, 3)) for want in (x, x[:, :, ::-1]))
    assert (kept ^ mirrored).all() and 70 < kept.sum() < 130
    z = pixels.augment(x, rng(), False, 10)
    steps = []
    for old, new in zip(x.astype(int), z.astype(int)):
        fits = [d for d in range(-10, 11) if (np.clip(old + d, 0, 255) == new).all()]
        assert len(fits) == 1
        steps += fits
    assert set(steps) == set(range(-10, 11)) and z.dtype == np.uint8
    assert (x == before).all()


@pytest.mark.parametrize("name", pixels.PRESETS)
def test_the_presets_windows_suit_their_pictures(name):
    """aft-local learns fast with windows that divide the sequence into 4 or more; one row and a pixel look up."""
    shape, _ = pixels.PRESETS[name]
    tokens = 3 * shape["size"] ** 2
    if "window" not in shape:
        return
    assert tokens % shape["window"] == 0 and tokens >= 4 * shape["window"] and shape["window"] > 3 * shape["size"]
    ModelConfig("image-generation", dim=shape["dim"], depth=shape["depth"], size=(shape["size"],) * 2, context=tokens,
                mixer=MixerConfig("aft-local", window=shape["window"]))


# ---- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(folder, tmp_path):
    arguments = [str(folder), *TINY, "--decay", "0", "--warmup", "1000", "--lr", "0.05", "--brightness", "10"]
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    steps, story = interrupted("pixels", pixels.main, arguments, parts, [signal.SIGKILL])
    assert pixels.main([*arguments, "--steps", str(steps), "--run", str(whole)]) == 0
    assert rows(parts) == rows(whole) and len(rows(whole)) >= steps // 2, story
    one, other = ((run / "model" / "model.safetensors").read_bytes() for run in (parts, whole))
    assert one == other, story


def test_greys_are_learnt_to_the_one_choice_that_they_have(tmp_path):
    """4 greys are 2 bits for the first of 48 sub-pixels and 0 for all others; by themselves they are 2 bits each."""
    folder = write(tmp_path / "greys", 40, grey)
    run = tmp_path / "run"
    assert pixels.main([str(folder), *TINY, "--lr", "2e-2", "--ema", "0.9", "--batch", "8", "--run", str(run)]) == 0
    bits = float(rows(run)[-1]["bits_per_dim"])
    assert 2 / 48 < bits < 0.3
    held = np.array([grey(i).reshape(-1) for i in range(4)])
    assert bits_per_element(load(run / "model"), held) == pytest.approx(bits, abs=0.05)
    assert "held out: 4 pictures" in (run / "model" / "README.md").read_text()


@pytest.mark.parametrize("wrong, wanted", [
    (["--size", "0"], "--size is 0"), (["--test-limit", "0"], "--test-limit is 0"),
    (["--kernel", "0"], "mixer.kernel is (0,)"), (["--dropout", "1"], "--dropout is 1, expected 0 to 1"),
    (["--brightness", "-1"], "--brightness is -1"), (["--valid-limit", "0"], "--valid-limit is 0"),
    (["--part", "nowhere"], "nowhere"), (["--valid-part", "nowhere"], "nowhere"),
    (["--window", "3"], "--window 3 is for aft-local"), (["--rank", "3"], "--rank 3 is for aft-full, aft-local"),
])
def test_a_contradictory_configuration_is_refused(folder, tmp_path, capsys, wrong, wanted):
    assert wanted in refusal(capsys, folder, "--run", tmp_path / "run", *TINY, *wrong)
    assert not (tmp_path / "run").exists()


def test_pictures_that_cannot_be_used_are_refused(folder, tmp_path, capsys, monkeypatch):
    run = ["--run", tmp_path / "run", *TINY]
    assert "no such folder or tar" in refusal(capsys, tmp_path / "missing", *run)
    (tmp_path / "text.tar").write_bytes(b"no tar at all")
    assert "text.tar: is no tar" in refusal(capsys, tmp_path / "text.tar", *run)
    assert "holds one picture" in refusal(capsys, write(tmp_path / "one", 1, noise), *run)
    (folder / "train" / "cat" / "004.png").write_bytes(b"no picture")
    assert "train/cat/004.png: " in refusal(capsys, folder, *run)
    monkeypatch.setattr(pixels, "PICTURES_BYTES_MAX", 12 * 48 - 1)
    line = refusal(capsys, folder, *run)
    assert "12 pictures of 4 x 4 have 576 bytes, expected at most 575: choose a smaller --size" in line
    assert not (tmp_path / "run").exists()
