import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from interrupt import PACKAGE, WAIT_SECONDS, last_step, rows
from PIL import Image
from safetensors.torch import save_file
from test_convert import random_vit
from test_pictures import picture, write_folder, write_tar
from tiny import tiny_model

from aft_train import augment, convert, export, images, load
from aft_train.check import check
from aft_train.loop import Recipe
from aft_train.model_config import MIXERS
from aft_train.pictures import read_pictures
from aft_train.quality import accuracy

STEPS = 160
TINY = ["--depth", "1", "--dim", "16", "--size", "8", "--patch", "4", "--batch", "4", "--threads", "1", "--warmup", "2",
        "--steps", "2", "--log-every", "2", "--evaluate-every", "100", "--train-dtype", "f32"]
SHAPE = dict(images.SMALL, depth=1, dim=8, size=8, resize_to=8)
EVERYTHING = dict(crop="resized", rand_augment=2, magnitude=9, erase=0.5, mixup=0.8, cutmix=1.0)


def coloured(seed, colour):
    """A JPEG of 14 x 11 pixels of about a colour."""
    pixels = np.array(colour) + np.random.default_rng(seed).normal(0, 30, (11, 14, 3))
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """20 pictures of each of two colours."""
    files = {f"{name}/{i}.jpg": coloured((i, colour), rgb) for i in range(20)
             for colour, (name, rgb) in enumerate((("green", (90, 140, 90)), ("red", (140, 90, 90))))}
    return str(write_folder(tmp_path_factory.mktemp("pictures"), files))


def refusal(capsys, *arguments):
    """The one line that a wrong command line gets, with exit code 2."""
    capsys.readouterr()
    assert images.main(list(arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("aft_train.images: "), lines
    return lines[0]


# ---- batches ---------------------------------------------------------------------------------------------------------


def batches(folder, workers=0, seed=0, **more):
    model = tiny_model("image-classification", "aft-conv", labels=["green", "red"], model=dict(pos_embed=False))
    recipe = Recipe(steps=1000, batch=6, lr=1.0, seed=seed)
    return images.Batches(read_pictures(folder), model, {**SHAPE, **more}, recipe, workers)


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("more", [{}, EVERYTHING])
def test_a_batch_is_a_function_of_seed_and_step(folder, more):
    whole = batches(folder, **more)
    by_step = [whole(step) for step in range(14)]  # an epoch is of 6 steps
    assert equal(batches(folder, **more)(9), by_step[9]) and equal(whole(3), by_step[3])
    assert not any(equal(by_step[a], by_step[b]) for a in range(14) for b in range(a))
    assert not equal(batches(folder, seed=1, **more)(0), by_step[0])
    for x, target in by_step:
        assert x.shape == (6, 3, 8, 8) and target.shape == (6, 2) and x.dtype == target.dtype == torch.float32
        torch.testing.assert_close(target.sum(1), torch.ones(6))


def test_workers_make_the_same_batches_and_draw_no_numbers_of_the_trainers(folder):
    alone, helped = batches(folder, **EVERYTHING), batches(folder, workers=2, **EVERYTHING)
    torch.manual_seed(5)
    for step in (3, 4, 5, 6, 12):
        assert equal(alone(step), helped(step))
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), drawn)


def test_an_epoch_has_every_picture_once(folder):
    source, config = read_pictures(folder), tiny_model("image-classification", "aft-conv").config
    steps = images.Steps(source, config, dict(SHAPE, shift=0), Recipe(steps=1, batch=8, lr=1.0))
    plain = [source.prepared(i, config) for i in range(40)]
    original = {pixels.tobytes(): i for i, x in enumerate(plain) for pixels in (x, x[:, ::-1])}
    seen = []
    for step in range(10):
        pixels, labels = steps[step]
        for x, label in zip(pixels, labels):
            seen.append(original[x.tobytes()])
            assert source.labels[seen[-1]] == label
    assert sorted(seen[:40]) == sorted(seen[40:]) == list(range(40)) and seen[:40] != seen[40:]


def test_with_repeats_an_epoch_has_so_many_of_each_of_a_part_of_the_pictures():
    epochs = [images.epoch_order(1, epoch, 40, 3).tolist() for epoch in range(2)]
    for order in epochs:
        counts = [order.count(i) for i in set(order)]
        assert len(order) == 40 and sorted(counts) == [1] + [3] * 13
    assert set(epochs[0]) != set(epochs[1])


def test_without_changes_pictures_or_their_mirror_images_are_learnt_as_the_daemon_sees_them(folder):
    model = tiny_model("image-classification", "aft-conv", resize_to=10, labels=["green", "red"])
    x, target = images.Batches(read_pictures(folder), model, dict(SHAPE, shift=0, smoothing=0.2),
                               Recipe(steps=9, batch=40, lr=1.0), 0)(0)
    mean, std = (torch.tensor(v)[:, None, None] for v in (model.config.mean, model.config.std))
    source = read_pictures(folder)
    for i in range(40):
        want = (torch.from_numpy(source.prepared(i, model.config)).permute(2, 0, 1) / 255 - mean) / std
        found = [n for n in range(40) if min((x[n] - w).abs().max() for w in (want, want.flip(2))) < 1e-5]
        assert len(found) == 1
        assert target[found[0]].tolist() == pytest.approx([0.9, 0.1] if source.labels[i] == 0 else [0.1, 0.9])


@pytest.mark.parametrize("counts, held", [
    ((150, 40), [15, 10]), ((40, 20), [10, 10]), ((19, 3), [9, 1]), ((2, 2), [1, 1])])
def test_of_each_class_a_tenth_or_ten_are_held_out_and_not_learnt(counts, held, tmp_path):
    source = read_pictures(write_folder(tmp_path / "p", {f"{name}/{i:03}.png": picture(i) for name, count in
                                                         zip(("cat", "dog"), counts) for i in range(count)}))
    learnt, kept = images.held_out(source, 0.1, 3)
    assert [kept.labels.count(0), kept.labels.count(1)] == held
    assert sorted(learnt.names + kept.names) == source.names
    for part in (learnt, kept):
        for i, name in enumerate(part.names):
            assert part.image(i).tobytes() == source.image(source.names.index(name)).tobytes()
    if counts == (40, 20):
        assert images.held_out(source, 0.1, 3)[1].names == kept.names != images.held_out(source, 0.1, 4)[1].names


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_trains_and_its_export_is_right(mixer, folder, tmp_path, request):
    run = tmp_path / "run"
    assert images.main([folder, *TINY, "--mixer", mixer, "--run", str(run), "--drop-path", "0.1", "--ema", "0.5"]) == 0
    assert check(run / "model")[0] < 1e-5
    model = load(run / "model")
    assert model.config.labels == ["green", "red"] and model.config.mixer.type == mixer
    assert json.loads((run / "run.json").read_text())["mixer"] == mixer
    if mixer == "aft-conv":
        aft = request.getfixturevalue("aft")
        subprocess.run([aft, "verify", str(run / "model")], check=True, stdout=subprocess.DEVNULL)


def test_colours_are_learnt(folder, tmp_path):
    run = tmp_path / "run"
    assert images.main([folder, *TINY, "--batch", "12", "--steps", "60", "--optimizer", "muon", "--lr", "1e-2",
                        "--shift", "1", "--run", str(run)]) == 0
    table = rows(run)
    assert float(table[-1]["accuracy"]) == 100 and float(table[-1]["loss"]) < 0.5 < 0.65 < float(table[0]["loss"])
    assert accuracy(load(run / "model"), read_pictures(folder)) > 95
    card = (run / "model" / "README.md").read_text()
    assert "held out: 20 pictures | 100.00 % right (95 % interval 83.9 to 100.0)" in card
    assert "20 pictures of " in card and "seed 0" in card
    assert all(f"| held out, {name}: 20 pictures | " in card for name in augment.DAMAGES)


def test_the_finished_model_is_tempered_by_what_was_held_out(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(images.quality, "temperature", lambda logits, want: seen.append(len(want)) or 4.0)
    assert images.main([folder, *TINY, "--ema", "0", "--run", str(tmp_path / "run")]) == 0
    made, kept = load(tmp_path / "run" / "model"), torch.load(tmp_path / "run" / "checkpoint.pt")["model"]
    torch.testing.assert_close(made.head.weight, kept["head.weight"] / 4)
    assert seen == [20]
    assert "| held out: 20 pictures, expected calibration error | " in (tmp_path / "run/model/README.md").read_text()


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """The folder of a finished run of two steps."""
    run = tmp_path_factory.mktemp("finished") / "run"
    assert images.main([folder, *TINY, "--run", str(run)]) == 0
    return run


def test_run_json_tells_what_a_run_depends_on(finished):
    told = json.loads((finished / "run.json").read_text())
    expected = {**SHAPE, "task": "image-classification", "mixer": "aft-conv", "dim": 16, "heads": 16, "patch": 4,
                "mean": list(images.IMAGENET_MEAN), "std": list(images.IMAGENET_STD), "init": None, "pictures": 20,
                "labels": ["green", "red"]}
    assert {key: told[key] for key in expected} == expected
    assert told.keys() - expected.keys() == {*Recipe.__dataclass_fields__, "names_crc32"}


def test_parts_and_further_pictures_are_held_out_if_named(folder, tmp_path):
    files = {f"{part}/{name}/{i}.png": picture(i) for part in ("train", "test") for name in "ab" for i in range(3)}
    tar = str(write_tar(tmp_path / "p.tar.gz", files))
    assert images.main([tar, *TINY, "--part", "train", "--valid-part", "test", "--run", str(tmp_path / "1")]) == 0
    assert "held out: 6 pictures" in (tmp_path / "1" / "model" / "README.md").read_text()
    other = write_folder(tmp_path / "other", {"green/1.png": picture(0), "red/1.png": picture(1)})
    assert images.main([folder, *TINY, "--valid", str(other), "--run", str(tmp_path / "2")]) == 0
    card = (tmp_path / "2" / "model" / "README.md").read_text()
    assert "held out: 2 pictures" in card and "40 pictures of " in card


def test_a_converted_deit_is_fine_tuned(folder, tmp_path):
    """224 x 224 pixels, as timm's are, with DeiT's augmentation; its classes are others."""
    save_file(random_vit(dim=16, depth=2, patch=16, grid=14, classes=3), tmp_path / "deit.safetensors")
    start, run = tmp_path / "start", tmp_path / "run"
    assert convert.main(["deit", str(tmp_path / "deit.safetensors"), str(start), "--to", "aft-conv", "--heads", "2",
                         "--conv-heads", "4", "--kernel", "5"]) == 0
    arguments = [folder, "--preset", "aft-conv-tiny-32-11", "--init", str(start), "--batch", "4", "--steps", "2",
                 "--warmup", "1", "--threads", "1", "--train-dtype", "f32", "--lr", "1e-6", "--ema", "0",
                 "--run", str(run)]
    assert images.main(arguments) == 0
    assert check(run / "model")[0] < 1e-5
    told = json.loads((run / "run.json").read_text())
    shape = dict(size=224, patch=16, dim=16, depth=2, heads=4, kernel=5, resize_to=256, init=str(start))
    assert {key: told[key] for key in shape} == shape
    old, new = load(start), load(run / "model")
    assert new.config.labels == ["green", "red"] and new.config.size == (224, 224)
    for name, p in old.named_parameters():
        if "head" not in name:
            torch.testing.assert_close(dict(new.named_parameters())[name], p, atol=1e-4, rtol=0)


def test_a_head_of_the_same_classes_is_kept(folder, tmp_path):
    model = tiny_model("image-classification", "attention", labels=["green", "red"])
    export(model, tmp_path / "start", [np.zeros((8, 8, 3), np.uint8)])
    arguments = [folder, "--init", str(tmp_path / "start"), *TINY[8:], "--lr", "1e-7", "--run", str(tmp_path / "run")]
    assert images.main(arguments) == 0
    torch.testing.assert_close(load(tmp_path / "run" / "model").head.weight, model.head.weight, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mixer, more", [
    ("attention", dict(pooling="class-token")), ("aft-full", dict(pooling="class-token")), ("aft-local", {}),
    ("aft-full", dict(factorised=False))], ids=str)
def test_positions_are_interpolated_for_another_size(mixer, more, folder, tmp_path):
    model = tiny_model("image-classification", mixer, labels=["green", "red"], **more)
    before = {name: p.clone() for name, p in model.named_parameters() if "pos_" in name}
    model.resize((8, 8))
    assert all(torch.allclose(p, before[name], atol=1e-6) for name, p in model.named_parameters() if "pos_" in name)
    model.resize((16, 12), resize_to=20)
    if mixer == "aft-local":  # as many rows of patches within it
        assert model.config.mixer.window == model.blocks[0].mixer.window == round(3 * 6 / 4)
    lead, after = int(hasattr(model, "cls_token")), dict(model.named_parameters())
    assert model.config.resize_to == 20 and model.config.grid == (8, 6) and after["pos_embed"].shape[0] == 48 + lead
    assert torch.equal(after["pos_embed"][:lead], before["pos_embed"][:lead])  # the class token has no place
    # What rises goes on doing so, by half as much from place to place, along each axis by its own.
    with torch.no_grad():
        model.resize((8, 8))
        rising = torch.arange(16.0).view(4, 4).T.flatten()[:, None].expand(16, 8)
        model.pos_embed = torch.nn.Parameter(torch.cat([torch.zeros(lead, 8), rising]))
        model.resize((16, 16))
    grid = model.pos_embed[lead:].view(8, 8, 8)[:, :, 0].detach()
    for slope, wanted in ((grid[5] - grid[2], 0.5), (grid[:, 5] - grid[:, 2], 2.0)):
        torch.testing.assert_close(slope / 3, torch.full((8,), wanted), rtol=0.15, atol=0)
    export(tiny_model("image-classification", mixer, labels=["green", "red"], **more), tmp_path / "start",
           [np.zeros((8, 8, 3), np.uint8)])
    assert images.main([folder, "--init", str(tmp_path / "start"), *TINY[8:], "--size", "12", "--run",
                        str(tmp_path / "run")]) == 0
    assert load(tmp_path / "run" / "model").config.size == (12, 12) and check(tmp_path / "run" / "model")[0] < 1e-5


# ---- interruptions ---------------------------------------------------------------------------------------------------


def children(pid):
    try:
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pids):
    """Those that have not ended; zombies have."""
    def state(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return "Z"
    return [pid for pid in pids if state(pid) not in "ZX"]


def stop(arguments, run, step, how, group):
    """Run the trainer in a process group of its own; past a step, send a signal to it, or to the group. -> exit code

    None of its workers may be left a while later.
    """
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONPYCACHEPREFIX": "build/pycache"}
    command = [sys.executable, "-m", "aft_train.images", *arguments, "--run", str(run)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while last_step(run) <= step:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        workers = children(process.pid)
        assert len(alive(workers)) == 2
        (os.killpg if group else os.kill)(process.pid, how)
        code = process.wait(WAIT_SECONDS)
        while alive(workers) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(workers)
        assert "Traceback" not in process.stderr.read()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.stderr.close()
        process.wait()
    return code


def test_a_run_with_workers_that_was_killed_and_stopped_goes_on_as_one_without_that_was_not(folder, tmp_path):
    """With all that random numbers decide: order, augmentation, dropped features and branches."""
    arguments = [folder, *TINY, "--depth", "2", "--steps", str(STEPS), "--save-every", "7", "--evaluate-every", "40",
                 "--optimizer", "muon", "--ema", "0.9", "--dropout", "0.1", "--drop-path", "0.2", "--crop", "resized",
                 "--rand-augment", "2", "--erase", "0.5", "--mixup", "0.8", "--cutmix", "1.0"]
    assert images.main([*arguments, "--run", str(tmp_path / "whole")]) == 0
    helped = [*arguments, "--workers", "2"]
    rng, run = random.Random(), tmp_path / "parts"
    killed, stopped = rng.randrange(8, 60), rng.randrange(70, 120)
    assert stop(helped, run, killed, signal.SIGKILL, group=False) == -signal.SIGKILL
    assert stop(helped, run, stopped, rng.choice([signal.SIGINT, signal.SIGTERM]), group=True) == 130
    assert killed < stopped < last_step(run) < STEPS and not (run / "model").exists()
    assert images.main([*arguments, "--run", str(run)]) == 0
    story = f"killed after step {killed}, stopped after {stopped}"
    assert rows(run) == rows(tmp_path / "whole"), story
    assert (run / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model" / "model.safetensors").read_bytes(), story


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_picture_that_cannot_be_read_ends_the_run_by_name_and_leaves_its_checkpoint(workers, tmp_path, capsys):
    """It is met in the last step of the first epoch."""
    last = int(np.random.default_rng([0, 0]).permutation(24)[-1])
    files = {f"{'ab'[i // 12]}/{i:02}.png": picture(i) for i in range(24)}
    bad = sorted(files)[last]
    files[bad] = files[bad][:40]
    path = write_folder(tmp_path / "p", files)
    good = write_folder(tmp_path / "good", {"a/1.png": picture(0), "b/1.png": picture(1)})
    run = tmp_path / "run"
    arguments = [str(path), "--valid", str(good), *TINY, "--steps", "12", "--save-every", "1", "--workers", workers,
                 "--run", str(run)]
    assert images.main(arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err and err.splitlines()[-1].startswith(f"aft_train.images: {path}/{bad}: ")
    assert not (run / "model").exists() and not children(os.getpid())
    (path / bad).write_bytes(picture(last))
    assert images.main(arguments) == 0
    assert rows(run)[-1]["step"] == "12" and (run / "model" / "config.json").exists()


def test_a_worker_that_was_killed_is_noticed(folder):
    helped = batches(folder, workers=1)
    helped(0)
    os.kill(children(os.getpid())[0], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for step in range(1, 50):
            helped(step)
            time.sleep(0.01)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong, wanted", [
    (["--heads", "3"], "mixer.heads is 3, expected a divisor of dim, 16"), (["--heads", "0"], "mixer.heads is 0"),
    (["--mixer", "attention", "--heads", "5"], "mixer.heads is 5, expected a divisor of dim, 16"),
    (["--mixer", "aft-full", "--heads", "2"], "--heads 2 is for aft-conv, attention, "),
    (["--patch", "3"], "input.patch is (3, 3), expected divisors of input.size, [8, 8]"),
    (["--patch", "0"], "input.patch"), (["--size", "0"], "input.size"),
    (["--depth", "0"], "depth is 0"), (["--dim", "-5"], "dim is -5"),
    (["--kernel", "0"], "mixer.kernel is (0, 0)"), (["--kernel", "256"], "mixer.kernel"),
    (["--mixer", "sima", "--kernel", "3"], "--kernel 3 is for aft-conv, not for sima"),
    (["--window", "3"], "--window 3 is for aft-local, not for aft-conv"),
    (["--mixer", "aft-local", "--window", "-1"], "mixer.window is -1"), (["--std", "1", "1", "0"], "input.std"),
    (["--mean", "nan", "0", "0"], "input.mean"), (["--resize-to", "-1"], "input.resize_to is -1"),
    (["--shift", "-1"], "--shift is -1, expected 0 to"), (["--rand-augment", "-1"], "--rand-augment is -1"),
    (["--erase", "1.5"], "--erase is 1.5, expected 0 to 1"), (["--mixup", "nan"], "--mixup is nan"),
    (["--cutmix", "-1"], "--cutmix is -1"), (["--smoothing", "1"], "--smoothing is 1.0, expected 0 to 0.99"),
    (["--dropout", "1"], "--dropout is 1, expected 0 to 1"), (["--drop-path", "-0.1"], "--drop-path is -0.1"),
    (["--rand-augment", "1", "--magnitude", "11"], "--magnitude is 11.0, expected 0 to 10"),
    (["--magnitude", "5"], "--magnitude 5 is RandAugment's, expected --rand-augment 1 or more"),
    (["--crop", "resized", "--shift", "2"], "--shift 2 goes with --crop shifted"),
    (["--repeats", "-5"], "--repeats is -5, expected 0 to 100"),
    (["--share-layers", "--drop-path", "0.1"], "--drop-path is 0.1, expected 0 with --share-layers"),
    (["--kernel-entropy", "-1"], "--kernel-entropy is -1, expected 0 or more"),
    (["--workers", "-1"], "--workers is -1, expected 0 to 1024"),
    (["--batch", "21"],
     "20 pictures to learn, fewer than a batch: expected --batch 20 or less"), (["--lr", "0"], "--lr is 0.0"),
    (["--part", "train"], "the part train"), (["--valid-part", "test"], "the part test"),
    (["--valid", "nowhere"], "nowhere: no such folder or tar"), (["--init", "nowhere"], "--depth is for a fresh model"),
    (["--out", "/dev/null/model"], "/dev/null is no folder"),
])
def test_options_that_contradict_are_refused(folder, tmp_path, capsys, wrong, wanted):
    assert wanted in refusal(capsys, folder, "--run", str(tmp_path / "run"), *TINY, *wrong)
    assert not (tmp_path / "run" / "run.json").exists()


def test_unknown_choices_are_wrong_usage(folder, tmp_path):
    for wrong in (["--mixer", "aft"], ["--preset", "huge"], ["--crop", "all"], ["--mean", "0.5"], ["--size", "big"]):
        with pytest.raises(SystemExit) as exit:
            images.main([folder, "--run", str(tmp_path / "run"), *wrong])
        assert exit.value.code == 2


@pytest.mark.parametrize("files, wanted", [
    ({"a/1.png": picture(0), "b/notes.txt": b""}, "the class folder b holds no pictures"),
    ({"a/1.png": picture(0), "a/2.png": picture(1)}, "has the class a alone, expected two or more"),
    ({"1.png": picture(0)}, "holds no class folders"), ({}, "holds no class folders"),
    ({f"{c}/{i}.png": picture(i) for c in "ab" for i in range(2)}, "has 2 pictures to learn, fewer than a batch"),
    ({"a/1.png": picture(0), "b/1.png": picture(1)}, "the class a has a single picture, expected two or more"),
    ({**{f"{root}/{i}.png": picture(i) for root in ("a", b"r\xff".decode(errors="surrogateescape"))
        for i in range(9)}},
     "labels[1] is 'r\\udcff', expected at most 256 bytes of UTF-8"),
    ({f"{c}/{i}.png": b"\x89PNG" for c in "ab" for i in range(9)}, ".png: no picture that can be read"),
])
def test_pictures_that_cannot_be_learnt_from_are_refused(files, wanted, tmp_path, capsys):
    path = write_folder(tmp_path / "p", files)
    path.mkdir(exist_ok=True)
    assert images.main([str(path), "--run", str(tmp_path / "run"), *TINY]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    at = "config.json: " if "labels" in wanted else path
    assert line.startswith(f"aft_train.images: {at}") and wanted in line


def test_folders_that_are_not_there_are_named(folder, tmp_path, capsys):
    run = ["--run", str(tmp_path / "run"), *TINY[8:]]
    assert "gone: no such folder or tar of pictures" in refusal(capsys, str(tmp_path / "gone"), *run)
    line = refusal(capsys, folder, *run, "--init", str(tmp_path / "gone"))
    assert f"{tmp_path}/gone/config.json: No such file" in line


@pytest.mark.parametrize("names", [("green", "blue"), ("green",), ("blue", "green", "red")])
def test_held_out_pictures_of_other_classes_are_refused(names, folder, tmp_path, capsys):
    other = write_folder(tmp_path / "other", {f"{name}/1.png": picture(0) for name in names})
    line = refusal(capsys, folder, "--run", str(tmp_path / "run"), *TINY, "--valid", str(other))
    single = {("green",): ("red", "learn")}.get(names, ("blue", "watch the run with"))
    assert "the class {} is among the pictures to {} alone".format(*single) in line


def test_models_that_are_no_classifiers_of_pictures_are_refused(folder, tmp_path, capsys):
    export(tiny_model(), tmp_path / "text", [b"a"])
    line = refusal(capsys, folder, "--run", str(tmp_path / "run"), *TINY[8:], "--init", str(tmp_path / "text"))
    assert f"{tmp_path}/text is for text-generation, expected a model for image-classification" in line


@pytest.mark.parametrize("option, value, named", [
    ("--shift", "3", "shift 4, not 3"), ("--heads", "8", "heads 16, not 8"),
    ("--mixer", "sima", "mixer 'aft-conv', not 'sima'"),
    ("--std", "1 1 1", "std [0.229"), ("--smoothing", "0", "smoothing 0.1, not 0.0"),
])
def test_another_run_is_not_continued(finished, folder, capsys, option, value, named):
    before = (finished / "run.json").read_bytes()
    assert images.main([folder, "--run", str(finished), *TINY, option, *value.split()]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert str(finished) in line and named in line
    assert (finished / "run.json").read_bytes() == before
