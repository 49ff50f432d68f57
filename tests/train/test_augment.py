import numpy as np
import pytest
import torch
from PIL import Image

from aft_train import augment
from aft_train.augment import FILL, OPERATIONS, erase, mix, rand_augment, random_resized_crop, shifted

SAME_AT_0 = OPERATIONS.keys() - {"autocontrast", "equalize", "invert", "posterize"}


def rng(*seed):
    return np.random.default_rng(seed)


def noise(width=40, height=30, low=60, high=200):
    """A random picture without black and white, which every operation changes."""
    return Image.fromarray(rng(0).integers(low, high, (height, width, 3), dtype=np.uint8))


def slopes(width, height, step):
    """A picture whose red tells the column and whose green tells the row, both times `step`."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.arange(width) * step
    pixels[..., 1] = np.arange(height)[:, None] * step
    return Image.fromarray(pixels)


# ---- RandAugment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("strength", [-1.0, -0.5, 0.0, 0.5, 0.9, 1.0])
def test_operations_keep_size_and_mode(name, strength):
    image = OPERATIONS[name](noise(), strength)
    assert image.size == (40, 30) and image.mode == "RGB"
    assert (image.tobytes() == noise().tobytes()) == (strength == 0 and name in SAME_AT_0)


@pytest.mark.parametrize("name, strength, expected", [
    ("posterize", 0.9, lambda v: v // 128 * 128), ("posterize", -1.0, lambda v: v // 128 * 128),
    ("posterize", 0.5, lambda v: v // 64 * 64), ("posterize", 0.0, lambda v: v // 16 * 16),
    ("solarize", 0.5, lambda v: np.where(v < 128, v, 255 - v)), ("solarize", 1.0, lambda v: 255 - v),
    ("solarize", -0.25, lambda v: np.where(v < 192, v, 255 - v)), ("invert", 0.3, lambda v: 255 - v),
    ("solarize add", 1.0, lambda v: np.where(v < 128, v + 110, v)),
    ("solarize add", -0.5, lambda v: np.where(v < 128, v + 55, v)),
    ("brightness", 1.0, lambda v: np.minimum(255, v * 1.9)), ("brightness", -1.0, lambda v: v * 0.1),
])
def test_strengths_mean_what_they_mean_in_deits_recipe(name, strength, expected):
    v = np.arange(256).reshape(16, 16)
    image = Image.fromarray(np.stack([v] * 3, axis=-1).astype(np.uint8))
    np.testing.assert_allclose(np.asarray(OPERATIONS[name](image, strength))[..., 0], expected(v), atol=1)


@pytest.mark.parametrize("axis, name", [(1, "move x"), (0, "move y")])
def test_pictures_move_by_up_to_045_of_their_side_over_the_mean_colour(axis, name):
    """By 9 of 20 pixels, to either side."""
    before = np.asarray(noise(20, 20)).swapaxes(0, axis)
    back, forth = (np.asarray(OPERATIONS[name](noise(20, 20), m)).swapaxes(0, axis) for m in (1.0, -1.0))
    np.testing.assert_array_equal(back[:11], before[9:])
    np.testing.assert_array_equal(forth[9:], before[:11])
    assert (back[11:] == FILL).all() and (forth[:9] == FILL).all()


def test_shears_and_rotations_reach_what_they_should():
    image = slopes(60, 60, 4)
    sheared = np.asarray(OPERATIONS["shear x"](image, 1.0)).astype(float)
    # Row y comes from 0.3 y to the right.
    np.testing.assert_allclose(sheared[20, 10:30, 0], 4 * (np.arange(10, 30) + 0.3 * 20.5), atol=1.5)
    sheared = np.asarray(OPERATIONS["shear y"](image, -0.5)).astype(float)
    np.testing.assert_allclose(sheared[30:50, 20, 1], 4 * (np.arange(30, 50) - 0.15 * 20.5), atol=1.5)
    turned = np.asarray(OPERATIONS["rotate"](image, 1.0)).astype(float)
    across, down = (turned[30, 40] - turned[30, 20])[:2] / 4 / 20
    assert np.degrees(np.arctan2(down, across)) == pytest.approx(30, abs=1)
    assert np.hypot(across, down) == pytest.approx(1, abs=0.02)


def test_each_operation_is_done_half_of_the_time():
    image = noise()
    once = sum(rand_augment(image, rng(i), 1, 9).tobytes() == image.tobytes() for i in range(400))
    assert 160 < once < 240
    never = sum(rand_augment(image, rng(i), 3, 9).tobytes() == image.tobytes() for i in range(400))
    assert 25 < never < 80  # an eighth
    assert rand_augment(image, rng(0), 0, 9) is image


def test_all_operations_are_drawn_with_strengths_about_the_magnitude(monkeypatch):
    seen = []
    spy = lambda name: lambda im, m: seen.append((name, m)) or im
    monkeypatch.setattr(augment, "OPERATIONS", {name: spy(name) for name in OPERATIONS})
    rand_augment(noise(), rng(1), 4000, 9)
    assert {name for name, _ in seen} == OPERATIONS.keys()
    strengths = np.array([m for _, m in seen])
    assert np.abs(strengths).mean() == pytest.approx(0.9, abs=0.01) and np.abs(strengths).max() <= 1
    assert np.abs(strengths)[np.abs(strengths) < 1].std() == pytest.approx(0.047, abs=0.006)
    assert abs((strengths > 0).mean() - 0.5) < 0.03


# ---- crops and erasing -----------------------------------------------------------------------------------------------


def test_random_crops_have_areas_and_aspects_in_range():
    image = slopes(60, 42, 4)
    areas, aspects = [], []
    for i in range(300):
        crop = random_resized_crop(image, rng(i), (24, 32), 0.08)
        assert crop.size == (32, 24)
        pixels = np.asarray(crop).astype(float)
        width = (pixels[12, 24, 0] - pixels[12, 8, 0]) / 4 / 16 * 32
        height = (pixels[18, 16, 1] - pixels[6, 16, 1]) / 4 / 12 * 24
        areas.append(width * height / 60 / 42)
        aspects.append(width / height)
    assert 0.06 < min(areas) < 0.15 and 0.8 < max(areas) < 1.03
    assert 0.68 < min(aspects) < 0.8 and 1.25 < max(aspects) < 1.5


@pytest.mark.parametrize("width, height", [(100, 3), (3, 100)])
def test_of_strips_the_middle_is_taken(width, height):
    image = slopes(width, height, 2)
    pixels = np.asarray(random_resized_crop(image, rng(0), (8, 8), 0.9)).astype(float)
    assert pixels.mean((0, 1)) == pytest.approx([width - 1, height - 1, 0], abs=2)
    assert random_resized_crop(Image.new("RGB", (1, 1)), rng(0), (8, 8), 0.08).size == (8, 8)


def test_pictures_are_shifted_over_black():
    image, places = noise(20, 12), set()
    wide = np.pad(np.asarray(image), ((2, 2), (2, 2), (0, 0)))
    for i in range(300):
        pixels = np.asarray(shifted(image, rng(i), 2))
        found = [(x, y) for x in range(5) for y in range(5) if (wide[y : y + 12, x : x + 20] == pixels).all()]
        assert len(found) == 1
        places.update(found)
    assert len(places) == 25
    assert shifted(image, rng(0), 0).tobytes() == image.tobytes()


def test_erasing_takes_a_rectangle():
    shares = []
    for i in range(200):
        before = np.full((30, 40, 3), 44, np.uint8)
        pixels = before.copy()
        erase(pixels, rng(i), 1.0)
        rows, columns = np.nonzero((pixels != before).any(axis=2))
        box = np.s_[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        changed = (pixels[box] != before[box]).any(axis=2)
        assert changed.mean() > 0.99  # noise may be the same by chance
        shares.append(changed.size / 1200)
    assert 0.015 < min(shares) < 0.05 and 0.28 < max(shares) < 0.35


def test_as_many_pictures_are_erased_as_asked():
    erased = 0
    for i in range(400):
        pixels = np.zeros((8, 8, 3), np.uint8)
        erase(pixels, rng(i), 0.25)
        erased += pixels.any()
    assert 75 < erased < 125


# ---- mixup and cutmix ------------------------------------------------------------------------------------------------


def batch(size=6, classes=3):
    """Pictures that are their number everywhere, and smoothed targets."""
    x = torch.arange(size).float()[:, None, None, None].expand(size, 3, 10, 14).contiguous()
    target = torch.nn.functional.one_hot(torch.arange(size) % classes, classes) * 0.9 + 0.1 / classes
    return x, target


@pytest.mark.parametrize("mixup, cutmix", [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0), (0.2, 5.0)])
def test_targets_are_mixed_as_the_pictures_are(mixup, cutmix):
    x, target = batch()
    kinds = set()
    for i in range(60):
        mixed, wanted = mix(x, target, rng(i), mixup, cutmix)
        torch.testing.assert_close(wanted.sum(1), torch.ones(6))
        keep = (wanted[0, 0] - target[5, 0]) / (target[0, 0] - target[5, 0])  # 5 is of class 2
        torch.testing.assert_close(wanted, keep * target + (1 - keep) * target.flip(0))
        # Whichever it is, a picture's mean is that of both in these shares.
        torch.testing.assert_close(mixed.mean((1, 2, 3)), keep * x[:, 0, 0, 0] + (1 - keep) * x.flip(0)[:, 0, 0, 0])
        whole = (mixed == x) | (mixed == x.flip(0))
        kinds.add("cutmix" if whole.all() else "mixup")
        if not 0 < keep < 1 or not whole.all():
            continue
        rows, columns = np.nonzero((mixed[0, 0] != 0).numpy())
        assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)  # a rectangle
        assert len(rows) / 140 == pytest.approx(1 - float(keep), abs=1e-5)
        assert (mixed == mixed[:, :1]).all()  # of all colours
    assert kinds == {kind for kind, alpha in (("mixup", mixup), ("cutmix", cutmix)) if alpha}
    assert (x == batch()[0]).all()  # what was given is as it was


def test_without_mixup_and_cutmix_a_batch_stays():
    x, target = batch()
    mixed = mix(x, target, rng(0), 0.0, 0.0)
    assert mixed[0] is x and mixed[1] is target


def test_the_share_that_is_kept_is_drawn_from_beta():
    x, target = batch()
    keeps = []
    for i in range(400):
        _, wanted = mix(x, target, rng(i), 0.4, 0.0)
        keeps.append(float((wanted[0, 0] - target[5, 0]) / (target[0, 0] - target[5, 0])))
    assert np.mean(keeps) == pytest.approx(0.5, abs=0.06)
    assert np.var(keeps) == pytest.approx(1 / (4 * (2 * 0.4 + 1)), abs=0.015)  # of Beta(a, a): 1 / (4 (2 a + 1))


# ---- damages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", augment.DAMAGES)
def test_a_damaged_picture_is_another_of_the_same_size_and_always_the_same(name):
    x, y = np.mgrid[0:20, 0:30]
    image = Image.fromarray(np.stack([8 * x, 8 * y, 4 * (x + y)], axis=2).astype(np.uint8))
    damaged, again = (np.array(augment.DAMAGES[name](image)).astype(int) for _ in range(2))
    assert damaged.shape == (20, 30, 3) and (damaged == again).all()
    off = damaged - np.array(image)
    assert 0.2 < abs(off).mean() < 80
    if "noise" in name:
        assert off[5:10, 5:20].std() == pytest.approx(10, rel=0.15) and abs(off[5:10, 5:20].mean()) < 2
    if "bright" in name:
        assert damaged[10, 10] == pytest.approx(np.array(image)[10, 10] / 2, abs=1)
