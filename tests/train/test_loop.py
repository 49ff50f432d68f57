import argparse
import copy
import fcntl
import math
import pickle
import shutil

import numpy as np
import pytest
import torch
from interrupt import rows
from safetensors import safe_open
from tiny import tiny_model

from aft_train import export, load, loop, text
from aft_train.export import ModelError, check_biases
from aft_train.loop import Recipe, TrainError, optimisers, schedule

RUN = ["--depth", "1", "--dim", "16", "--context", "16", "--window", "4", "--batch", "2", "--threads", "1",
       "--warmup", "5", "--steps", "20", "--log-every", "5", "--evaluate-every", "10", "--train-dtype", "f32"]
LETTERS = np.random.default_rng(0).integers(97, 123, 2000).astype(np.uint8).tobytes()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(LETTERS)
    return str(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The text and the folder of a run of 20 steps."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text").write_bytes(LETTERS)
    assert text.main([str(folder / "text"), "--run", str(folder / "run"), *RUN]) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """The folder of such a run, to do with as a test likes."""
    return shutil.copytree(finished / "run", tmp_path / "run")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert text.main(list(arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in "".join(lines)
    return lines[-1]


# ---- schedule --------------------------------------------------------------------------------------------------------


def test_the_rate_rises_stays_and_falls_to_the_end():
    recipe = Recipe(steps=100, batch=1, lr=1.0, warmup=10, decay=0.5)
    for step, factor in ((0, 0.1), (4, 0.5), (9, 1.0), (30, 1.0), (50, 1.0), (75, 0.5), (99, 0.02)):
        assert schedule(recipe, step) == pytest.approx(factor), step


def test_a_rate_that_falls_as_the_root_is_highest_after_its_warm_up():
    """Vaswani et al. 2017, eq. 3, relative to its highest."""
    recipe = Recipe(steps=4000, batch=1, lr=1.0, warmup=100, schedule="root")
    for step, factor in ((0, 0.01), (49, 0.5), (99, 1.0), (399, 0.5), (2499, 0.2)):
        assert schedule(recipe, step) == pytest.approx(factor), step


def test_a_rate_that_falls_as_a_cosine_ends_at_a_hundredth():
    recipe = Recipe(steps=300, batch=1, lr=1.0, warmup=5, schedule="cosine")
    for step, factor in ((0, 0.2), (4, 1.0), (100, 0.7525), (150, 0.505), (200, 0.2575), (300, 0.01)):
        assert schedule(recipe, step) == pytest.approx(factor, abs=1e-3), step


def test_without_warm_up_or_fall_the_rate_is_flat():
    recipe = Recipe(steps=100, batch=1, lr=1.0, warmup=0, decay=0.0)
    assert {schedule(recipe, step) for step in range(100)} == {1.0}


def test_a_fall_over_the_whole_run_meets_the_warm_up():
    recipe = Recipe(steps=10, batch=1, lr=1.0, warmup=4, decay=1.0)
    factors = [schedule(recipe, step) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def test_random_numbers_of_a_step_are_its_own():
    draws = {(seed, step): loop.step_rng(seed, step).integers(1 << 60) for seed in range(5) for step in range(5)}
    assert len(set(draws.values())) == 25
    assert draws[3, 4] == loop.step_rng(3, 4).integers(1 << 60)


# ---- optimisers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("task, mixer", [("text-generation", "aft-local"), ("image-classification", "aft-conv"),
                                         ("image-classification", "attention"), ("text-classification", "fastformer")])
def test_only_the_blocks_matrices_and_the_patch_embedding_decay(optimizer, task, mixer):
    """With a gradient of 0 a step does nothing but decay."""
    model = tiny_model(task, mixer, depth=1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for optimiser in optimisers(model, Recipe(steps=1, batch=1, lr=0.1, weight_decay=0.5, optimizer=optimizer)):
        optimiser.step()
    matrices = {f"blocks.0.{at}.weight" for at in ("mixer.q", "mixer.k", "mixer.v", "mixer.out", "mlp.fc1", "mlp.fc2")}
    matrices.add("patch_embed.weight")
    for name, p in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if name in matrices else 1.0
        torch.testing.assert_close(p.detach(), before[name] * factor, msg=name)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_moves_every_parameter_that_has_a_gradient(optimizer):
    model = tiny_model("image-classification", "aft-conv", depth=1)
    before = copy.deepcopy(model)
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    for optimiser in optimisers(model, Recipe(steps=1, batch=1, lr=0.1, weight_decay=0.0, optimizer=optimizer)):
        optimiser.step()
    for (name, p), old in zip(model.named_parameters(), before.parameters()):
        assert not torch.equal(p, old), name


# ---- runs ------------------------------------------------------------------------------------------------------------


def small_run(folder, recipe, evaluate=lambda model: 0.0, model=None, dtype="f32"):
    """A Run of a tiny text classifier that makes its outputs small."""
    args = argparse.Namespace(run=folder, out=None, dtype=dtype, aft=None, license="unknown", command=["python"])
    model = model or tiny_model("text-classification", "aft-simple", depth=1)
    return loop.Run(args, model, recipe, {}, metric="nothing", evaluate=evaluate,
                    batch=lambda step: torch.arange(12)[None] + step,
                    loss=lambda forward, x: forward(x).square().mean())


def test_the_weights_average_is_what_is_measured_and_exported(tmp_path):
    """average += (1 - decay) (weights - average) after every step, with a decay of (1 + n) / (10 + n) at first."""
    seen = []
    recipe = Recipe(steps=4, batch=1, lr=0.1, warmup=0, ema=0.3, log_every=1, evaluate_every=4, train_dtype="f32")
    run = small_run(tmp_path / "run", recipe, lambda model: seen.append(copy.deepcopy(model)) or 0.0)
    model = copy.deepcopy(run.model)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert run.train()

    by_hand = optimisers(model, recipe)
    for step in range(4):
        model.zero_grad()
        model(torch.arange(12)[None] + step).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in by_hand:
            for group in optimiser.param_groups:
                group["lr"] = 0.1 * (4 - step) / 4
            optimiser.step()
        decay = min(0.3, (2 + step) / (11 + step))
        for name, p in model.named_parameters():
            average[name] += (1 - decay) * (p.detach() - average[name])

    run.export([b"abc"], lambda model: [], "nothing")
    exported = load(tmp_path / "run" / "model").state_dict()
    assert len(seen) == 1 and not seen[0].training
    for name, p in run.model.named_parameters():
        torch.testing.assert_close(p, dict(model.named_parameters())[name])
        torch.testing.assert_close(dict(seen[0].named_parameters())[name].detach(), average[name])
        torch.testing.assert_close(exported[name], average[name])


@pytest.mark.parametrize("mixer", ["aft-full", "aft-local", "aft-conv"])
def test_biases_that_grow_too_large_are_kept_to_what_can_be_written(tmp_path, mixer):
    model = tiny_model("text-classification", mixer, depth=1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "pos_" in name or "conv.gain" in name:
                p *= (70.0 if "conv" in name else 70.0**0.5) / p.abs().max()
    with pytest.raises(ModelError, match="the position bias"):
        export(model, tmp_path / "refused", [b"abc"])
    run = small_run(tmp_path / "run", Recipe(steps=2, batch=1, lr=0.1, ema=0.0), model=model, dtype="bf16")
    assert run.train()
    check_biases(run.model)  # of every step's weights, not of what export makes of their average alone
    run.export([b"abc"], lambda model: [], "nothing")
    assert load(tmp_path / "run" / "model")


def test_the_model_goes_where_and_how_it_was_asked_for(file, tmp_path):
    how = ["--out", str(tmp_path / "mine"), "--dtype", "bf16"]
    assert text.main([file, "--run", str(tmp_path / "run"), *RUN, *how]) == 0
    with safe_open(tmp_path / "mine" / "model.safetensors", "pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"BF16"}
    assert not (tmp_path / "run" / "model").exists()


def test_what_is_no_model_is_not_written_over(file, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters").write_text("dear")
    line = refusal(capsys, file, "--run", str(tmp_path / "run"), *RUN, "--out", str(tmp_path / "mine"))
    assert f"{tmp_path}/mine exists and is no model directory" in line
    assert files(tmp_path / "mine") == {"letters": b"dear"} and not (tmp_path / "run" / "log.csv").exists()


def test_a_run_folder_that_cannot_be_made_is_named(file, tmp_path, capsys):
    assert f"{file}/run" in refusal(capsys, file, "--run", f"{file}/run", *RUN)


def test_a_finished_run_stays_as_it_is(run, file):
    assert text.main([file, "--run", str(run), *RUN]) == 0
    before = files(run)
    assert text.main([file, "--run", str(run), *RUN]) == 0
    assert files(run) == before


def test_a_run_with_a_flat_rate_can_be_made_longer(file, tmp_path):
    flat = [file, *RUN, "--decay", "0"]
    for steps in ("20", "40"):
        assert text.main([*flat, "--steps", steps, "--run", str(tmp_path / "longer")]) == 0
    assert text.main([*flat, "--steps", "40", "--run", str(tmp_path / "whole")]) == 0
    assert rows(tmp_path / "longer") == rows(tmp_path / "whole")
    assert rows(tmp_path / "whole")[-1]["step"] == "40"


@pytest.mark.parametrize("option, value, named", [
    ("--lr", "0.1", "lr 0.008, not 0.1"), ("--batch", "3", "batch 2, not 3"), ("--dim", "32", "dim 16, not 32"),
    ("--seed", "1", "seed 0, not 1"), ("--mixer", "attention", "--window 4 is for aft-local"),
    ("--train", "0:500", "train [0, 1800], not [0, 500]"), ("--dropout", "0.5", "dropout 0.0, not 0.5"),
])
def test_another_run_is_not_continued(run, file, capsys, option, value, named):
    before = files(run)
    line = refusal(capsys, file, "--run", str(run), *RUN, option, value)
    assert named in line and (str(run) in line or "--window" in line)
    assert files(run) == before


def test_another_text_of_the_same_length_is_not_continued(run, file, capsys):
    with open(file, "r+b") as f:
        f.write(b"A")
    assert "holds a run with bytes_crc32" in refusal(capsys, file, "--run", str(run), *RUN, "--steps", "30")


def test_fewer_steps_than_were_made_are_refused(run, file, capsys):
    before = files(run)
    assert f"{run} holds a run of 20 steps" in refusal(capsys, file, "--run", str(run), *RUN, "--steps", "10")
    assert files(run) == before


def test_a_folder_in_which_another_process_trains_is_left_alone(run, file, capsys):
    before = files(run)
    with open(run / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = refusal(capsys, file, "--run", str(run), *RUN, "--steps", "30")
        assert f"{run}: another process trains there" in line
    assert files(run) == before
    assert text.main([file, "--run", str(run), *RUN]) == 0


def test_a_batch_beyond_memory_fails_in_one_line(file, tmp_path, capsys):
    assert text.main([file, "--run", str(tmp_path / "run"), *RUN, "--batch", "100000000000000"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("aft_train.text: ")


@pytest.mark.parametrize("damage", [
    pytest.param(lambda good: good[: len(good) // 2], id="half"), pytest.param(lambda good: b"", id="empty"),
    pytest.param(lambda good: b"no checkpoint at all\n" * 9, id="text"),
    pytest.param(lambda good: good[:-1], id="all but a byte"),
    pytest.param(lambda good: pickle.dumps({"step": 3}, 2), id="something else"),
])
def test_a_damaged_checkpoint_is_refused(run, file, capsys, damage):
    path = run / "checkpoint.pt"
    path.write_bytes(damage(path.read_bytes()))
    before = files(run)
    assert f"{path} is no checkpoint of this run" in refusal(capsys, file, "--run", str(run), *RUN, "--steps", "30")
    assert files(run) == before


def test_options_that_cannot_be_read_are_refused(run, file, capsys):
    (run / "run.json").write_text("{")
    assert f"{run}/run.json does not say" in refusal(capsys, file, "--run", str(run), *RUN)


def test_a_run_whose_loss_is_no_number_ends_with_advice(file, tmp_path, capsys):
    line = refusal(capsys, file, "--run", str(tmp_path / "run"), *RUN, "--lr", "1e30", "--clip", "0", "--warmup", "0")
    assert "the loss is nan at step" in line and "smaller --lr" in line


def test_rows_after_the_checkpoint_are_taken_out(tmp_path):
    log = loop.Log(tmp_path / "log.csv", ["step", "loss"], 0)
    for step in (5, 10, 15):
        log.add({"step": step, "loss": 1 / step})
    with open(tmp_path / "log.csv", "a") as f:
        f.write("2")  # of 20, which a crash cut short
    kept = loop.Log(tmp_path / "log.csv", ["step", "loss"], 12)
    kept.add({"step": 15, "loss": None})
    assert (tmp_path / "log.csv").read_text() == "step,loss\n5,0.2\n10,0.1\n15,\n"


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(f):
        f.write(b"half")
        raise OSError("no space")

    with pytest.raises(OSError):
        loop.write_aside(path, fail)
    assert files(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("key, value", [
    ("steps", 0), ("batch", 0), ("lr", 0.0), ("lr", -1.0), ("lr", math.nan), ("decay", 1.1), ("ema", -0.1),
    ("clip", -1.0), ("threads", -1), ("save_every", 0), ("weight_decay", -1.0),
])
def test_a_recipe_out_of_range_is_refused_by_name(key, value):
    with pytest.raises(TrainError, match=f"^--{key.replace('_', '-')} is {value}, expected"):
        Recipe(**{"steps": 1, "batch": 1, "lr": 1.0, key: value})
