import json

import pytest
import torch
from tiny import tiny_model

from aft_train import card
from aft_train.loop import Recipe


def text(model, recipe, **more):
    return card.text("mine", model, recipe, **{**dict(
        data="3 pictures of cats.", command=["python", "-m", "aft_train.images", "my pictures", "--run", "r"],
        steps=recipe.steps, done=1.0, seconds=3700,
        figures=[("held out: 8 pictures", "50.00 % right"), ("test", "1.2345 bits")]), **more})


def test_a_card_has_all_that_it_takes_to_train_the_model_again():
    model = tiny_model("image-classification", "aft-conv")
    recipe = Recipe(steps=1200, batch=64, lr=6e-3, warmup=20, decay=0.7, weight_decay=0.05, optimizer="muon", seed=17,
                    ema=0.998)
    card_text = text(model, recipe)
    for part in ("# mine\n", "image-classification with aft-conv, 2 heads, kernel 3 x 3; 2 blocks of dim 8; 8 x 8 "
                 "pixels in patches of 2 x 2, 3 classes; ", f"{model.parameter_count():,} parameters.",
                 "3 pictures of cats.", "    python -m aft_train.images 'my pictures' --run r\n",
                 "1200 steps of 64 pictures, muon, learning rate 0.006 (warm-up 20 steps, falling to 0 over the ",
                 "over the last 70%),",
                 "weight decay 0.05, seed 17, weights averaged at 0.998.", "It took 1 h 2 min on: ",
                 f"PyTorch {torch.__version__}", "curves.png",
                 "| held out: 8 pictures | 50.00 % right |\n| test | 1.2345 bits |\n"):
        assert part in card_text, part


def test_the_head_is_what_readers_of_other_cards_know():
    model = tiny_model("image-classification", "aft-conv")
    head = text(model, Recipe(steps=5, batch=2, lr=1e-3), license="mit", figures=[
        ("held out: 8 pictures", "50.00 % right (95 % interval 1 to 99)"), ("its calibration", "3.00 %"),
        ("baseline: majority class", "10.00 % right")]).split("---\n")
    assert head[0] == "" and head[2].startswith("\n# mine\n")
    read = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in head[1].splitlines())}
    assert read["license"] == "mit" and read["pipeline_tag"] == "image-classification"
    assert read["tags"] == ["attention-free-transformer", "aft-conv"]
    [index] = read["model-index"]
    assert index["name"] == "mine" and index["results"][0]["task"] == {"type": "image-classification"}
    assert index["results"][0]["metrics"] == [{"name": "held out: 8 pictures", "type": "accuracy", "value": 50.0}]


def test_a_run_by_the_clock_tells_its_steps_and_where_it_was_stopped():
    recipe = Recipe(steps=1000, batch=64, lr=6e-3, minutes=2, warmup=50, decay=0.7)
    card_text = text(tiny_model(), recipe, steps=731, seconds=120.1)
    assert "731 steps of 64 windows, " in card_text and "It took 2 min on: " in card_text
    assert "(warm-up over the first 5% of the time, falling to 0 over the last 70%)" in card_text
    assert "stopped" not in card_text
    assert ". It was stopped there, at 25% of 2 min." in text(tiny_model(), recipe, steps=183, done=0.25, seconds=30)


def test_what_was_not_done_is_not_told():
    card_text = text(tiny_model(), Recipe(steps=5, batch=2, lr=1e-3, decay=0.0))
    assert "text-generation with aft-local, window 3; 2 blocks of dim 8; context 12; " in card_text
    assert "5 steps of 2 windows, adamw, learning rate 0.001 (warm-up 100 steps, then constant)" in card_text
    assert "averaged" not in card_text


@pytest.mark.parametrize("task, name, words", [
    ("image-classification", "attention", "with attention, 2 heads; "),
    ("image-generation", "aft-full", "with aft-full; "), ("text-classification", "sima", "with sima, 2 heads; "),
    ("text-generation", "aft-conv", "with aft-conv, 2 heads, kernel 3; "),
])
def test_mixers_are_told_with_what_belongs_to_them(task, name, words):
    assert words in card.shape(tiny_model(task, name))


@pytest.mark.parametrize("seconds, words", [
    (0.4, "0 s"), (29, "29 s"), (31, "1 min"), (3540, "59 min"), (3600, "1 h 0 min"), (90061, "25 h 1 min"),
])
def test_durations_are_rounded(seconds, words):
    assert card.duration(seconds) == words
