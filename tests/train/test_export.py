import errno
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from tiny import KINDS, tiny_model

from aft_train import ModelError, export, load
from aft_train.check import check, read_cases
from aft_train.export import DTYPES, assemble, logits_of, rounded, sample_inputs, sync

KIND_IDS = [f"{task}-{mixer}" for task, mixer in KINDS]


def save(model, folder, **options):
    """Export with sample inputs. -> the folder"""
    export(model, folder, sample_inputs(model.config), **options)
    return folder


def tensors_of(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder, change):
    """Let change(tensors) edit a directory's tensors."""
    tensors = tensors_of(folder)
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def refused(folder):
    with pytest.raises(ModelError) as e:
        load(folder)
    assert "\n" not in str(e.value)
    return str(e.value)


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("task,mixer", KINDS, ids=KIND_IDS)
def test_what_is_exported_loads_and_agrees(task, mixer, dtype, tmp_path):
    model = tiny_model(task, mixer)
    save(model, tmp_path / "m", dtype=dtype)
    again = load(tmp_path / "m")
    assert not again.training
    want = {name: t.to(DTYPES[dtype]).float() for name, t in model.state_dict().items()}
    got = again.state_dict()
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == torch.float32 and torch.equal(got[name], want[name]), name
    worst, count = check(tmp_path / "m")
    assert count == len(sample_inputs(model.config)) and worst < 2e-5
    with safe_open(tmp_path / "m" / "model.safetensors", "pt") as f:
        assert {f.get_slice(name).get_dtype() for name in f.keys()} == {dtype.upper()}


FORMS = [
    dict(model=dict(pos_embed=False)), dict(model=dict(start_embed=True)), dict(factorised=False),
    dict(mixer="aft-full"), dict(mixer="aft-conv", reparameterised=False),
    dict(mixer="aft-conv", query_gate=False, global_sum=False),
    dict(task="text-classification", mixer="fastformer", share_value_query=True, share_layers=True),
    dict(task="text-classification", mixer="aft-full", pooling="class-token"),
    dict(task="image-classification", mixer="aft-full", pooling="class-token"),
    dict(task="image-classification", mixer="aft-conv", model=dict(pos_embed=False), size=(4, 12), patch=(2, 3)),
    dict(task="image-generation", model=dict(start_embed=False)),
    dict(activation="gelu_tanh", mlp_ratio=1, norm_eps=1e-3),
]


def name_of(how):
    return ",".join(f"{k}={v}" for k, v in how.items()).replace(" ", "")


@pytest.mark.parametrize("how", FORMS, ids=name_of)
def test_every_form_of_a_checkpoint_is_kept(how, tmp_path):
    model = tiny_model(**how)
    again = load(save(model, tmp_path / "m"))
    assert again.state_dict().keys() == model.state_dict().keys()
    for x in sample_inputs(model.config):
        np.testing.assert_allclose(logits_of(again, x), logits_of(model, x), atol=1e-6)
    assert check(tmp_path / "m")[0] < 2e-5


def test_any_rank_and_any_missing_bias_is_taken(tmp_path):
    """d' may differ by block, and so may the form of the biases."""
    save(tiny_model(), tmp_path / "m")

    def change(tensors):
        for name in ("blocks.0.mixer.q.bias", "blocks.1.mlp.fc1.bias", "blocks.1.mixer.out.bias", "head.bias"):
            del tensors[name]
        tensors["blocks.0.mixer.pos_u"], tensors["blocks.0.mixer.pos_v"] = torch.randn(12, 5), torch.randn(12, 5)
        del tensors["blocks.1.mixer.pos_u"], tensors["blocks.1.mixer.pos_v"]
        tensors["blocks.1.mixer.pos_bias"] = torch.randn(12, 12)

    rewrite(tmp_path / "m", change)
    model = load(tmp_path / "m")
    assert model.state_dict().keys() == tensors_of(tmp_path / "m").keys()
    save(model, tmp_path / "again")
    assert check(tmp_path / "again")[0] < 2e-5


def test_mixed_precisions_and_patch_embeddings_without_bias_are_taken(tmp_path):
    save(tiny_model("image-classification", "attention"), tmp_path / "m")

    def change(tensors):
        del tensors["patch_embed.bias"]
        tensors["head.weight"] = tensors["head.weight"].half()
        tensors["pos_embed"] = tensors["pos_embed"].bfloat16()

    rewrite(tmp_path / "m", change)
    assert {p.dtype for p in load(tmp_path / "m").parameters()} == {torch.float32}


def test_cases_are_those_of_the_rounded_weights_in_float64(tmp_path):
    model = tiny_model()
    save(model, tmp_path / "m", dtype="bf16")
    served = assemble(model.config, rounded(model, "bf16")).double()
    for x, logits in read_cases(tmp_path / "m"):
        assert logits.dtype == np.float32 and x.dtype == np.uint8
        with torch.no_grad():
            np.testing.assert_array_equal(logits, served(torch.from_numpy(x)[None])[0].float())


def test_pictures_are_normalised_as_the_oracle_does(oracle, tmp_path):
    model = tiny_model("image-classification", "aft-conv", size=(4, 6))
    save(model, tmp_path / "m")
    reference = oracle.Model(str(tmp_path / "m"))
    for x, logits in read_cases(tmp_path / "m"):
        np.testing.assert_allclose(logits, reference.image_logits(x), rtol=1e-6, atol=1e-6)


def test_bytes_are_scored_as_the_oracle_does(oracle, tmp_path):
    save(tiny_model("image-generation", "aft-full"), tmp_path / "m")
    reference = oracle.Model(str(tmp_path / "m"))
    for x, logits in read_cases(tmp_path / "m"):
        np.testing.assert_allclose(logits, reference.lm_logits(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [
    dict(task="image-classification", mixer="aft-conv", model=dict(pos_embed=False)),
    dict(task="image-classification", mixer="aft-conv", query_gate=False, global_sum=False, reparameterised=False),
    dict(window=3), dict(window=40, factorised=False), dict(window=2, global_sum=False),
], ids=name_of)
def test_the_served_engine_agrees(aft, how, dtype, tmp_path):
    model = tiny_model(**how)
    inputs = sample_inputs(model.config)
    if model.config.size and not hasattr(model, "pos_embed"):
        inputs.append(np.random.default_rng(1).integers(0, 256, (12, 6, 3), dtype=np.uint8))  # fully convolutional
    export(model, tmp_path / "m", inputs, dtype)
    run = subprocess.run([aft, "verify", str(tmp_path / "m")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed, 0 failed" in run.stdout


@pytest.mark.parametrize("how", [dict(task=task, mixer=mixer) for task, mixer in KINDS] + FORMS, ids=name_of)
def test_the_served_engine_agrees_on_every_kind(aft, how, tmp_path):
    """Of odd sizes too: heads of 5 channels, rows that fill no register."""
    for more in ({}, {"dim": 20, "heads": 4, "depth": 1}, {"dim": 33, "heads": 1, "share_layers": True}):
        model = tiny_model(**{**how, **more})
        export(model, tmp_path / "m", sample_inputs(model.config), overwrite=True)
        run = subprocess.run([aft, "verify", "--tolerance", "3e-5", tmp_path / "m"], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


def test_shards_and_their_index_load(tmp_path):
    model = tiny_model()
    save(model, tmp_path / "m")
    tensors = tensors_of(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    where = {name: f"model-{i % 3}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(where.values()):
        safetensors.torch.save_file({n: t for n, t in tensors.items() if where[n] == file}, tmp_path / "m" / file)
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert all(torch.equal(t, tensors[name]) for name, t in load(tmp_path / "m").state_dict().items())

    index.write_text(json.dumps({"weight_map": {n: f for n, f in where.items() if n != "head.weight"}}))
    assert "holds tensor head.weight, which weight_map expects in None" in refused(tmp_path / "m")
    index.write_text(json.dumps({"weight_map": {**where, "extra": "model-0.safetensors"}}))
    assert "weight_map names tensor extra, which model-0.safetensors does not hold" in refused(tmp_path / "m")
    for wrong in ("{", "[]", '{"weight_map": []}', '{"weight_map": {"a": "../b"}}', '{"weight_map": {"a": 1}}'):
        index.write_text(wrong)
        assert "expected an object whose weight_map" in refused(tmp_path / "m")


# ---- what load refuses -----------------------------------------------------------------------------------------------


def put(name, tensor):
    return lambda tensors: tensors.update({name: tensor})


def drop(*names):
    return lambda tensors: [tensors.pop(name) for name in names]


def spoil(name, value):
    def change(tensors):
        tensors[name].view(-1)[3] = value
    return change


@pytest.mark.parametrize("change,message", [
    (drop("head.weight"), r"head\.weight is missing, expected shape \[256, 8\] \(outputs, dim\)"),
    (drop("tok_embed"), r"tok_embed is missing, expected shape \[256, 8\] \(byte values, dim\)"),
    (drop("blocks.1.norm1.bias"), r"blocks\.1\.norm1\.bias is missing, expected shape \[8\] \(dim\)"),
    (drop("blocks.1.mixer.pos_u"), r"blocks\.1\.mixer\.pos_u is missing, expected it beside blocks\.1\.mixer\.pos_v"),
    (drop("blocks.0.mixer.pos_u", "blocks.0.mixer.pos_v"),
     r"blocks\.0\.mixer\.pos_u is missing, expected pos_u and pos_v or pos_bias"),
    (put("blocks.0.mixer.pos_bias", torch.zeros(12, 12)), r"pos_bias stands beside blocks\.0\.mixer\.pos_u"),
    (put("blocks.0.mixer.q.weight", torch.zeros(8, 9)),
     r"blocks\.0\.mixer\.q\.weight has shape \[8, 9\], expected \[8, 8\] \(dim, dim\)"),
    (put("blocks.0.mixer.pos_v", torch.zeros(12, 3)),
     r"blocks\.0\.mixer\.pos_v has shape \[12, 3\], expected \[12, 12\]"),
    (put("blocks.0.mixer.pos_u", torch.zeros(12)), r"blocks\.0\.mixer\.pos_u has shape \[12\]"),
    (put("pos_embed", torch.zeros(11, 8)), r"pos_embed has shape \[11, 8\], expected \[12, 8\] \(tokens, dim\)"),
    (put("cls_token", torch.zeros(8)), r"cls_token is left over: no such tensor is expected for text-generation"),
    (put("blocks.2.norm1.weight", torch.zeros(8)), r"blocks\.2\.norm1\.weight is left over: .* aft-local, 2 blocks"),
    (lambda t: t.update(a=torch.zeros(1), b=torch.zeros(1)), r"a is left over \(and 1 more\)"),
    (put("head.bias", torch.zeros(256).int()), r"head\.bias is int32, expected float32, float16 or bfloat16"),
    (put("head.bias", torch.zeros(256).double()), r"head\.bias is float64"),
    (spoil("norm.weight", torch.nan), r"norm\.weight holds NaN or infinity"),
    (spoil("blocks.1.mlp.fc2.weight", torch.inf), r"blocks\.1\.mlp\.fc2\.weight holds NaN or infinity"),
    (lambda t: t.update({f"blocks.1.mixer.pos_{x}": torch.full((12, 12), 3.0) for x in "uv"}),
     r"blocks\.1\.mixer\.pos_u times pos_v: the position bias at \[0, 0\] is 108, expected -60\.\.60"),
])
def test_tensors_that_do_not_fit_are_named(change, message, tmp_path):
    save(tiny_model(), tmp_path / "m")
    rewrite(tmp_path / "m", change)
    assert re.search(message, refused(tmp_path / "m")), refused(tmp_path / "m")
    assert refused(tmp_path / "m").startswith(str(tmp_path / "m") + ": ")


@pytest.mark.parametrize("change,message", [
    (drop("blocks.0.mixer.conv.gain"), r"blocks\.0\.mixer\.conv\.gain is missing, expected it beside .*conv\.bias"),
    (drop("blocks.1.mixer.conv.bias"), r"blocks\.1\.mixer\.conv\.bias is missing, expected it beside .*conv\.gain"),
    (put("blocks.0.mixer.conv.weight", torch.ones(2, 3, 3)),
     r"conv\.gain scales a kernel by its spread, and head 0 of .* has none: all its taps are equal"),
    (put("blocks.0.mixer.conv.bias", torch.tensor([0.0, 61.0])),
     r"conv\.weight: the position bias of head 1 at tap \[\d, \d\] is 6\d.* after .*conv\.gain and .*expected -60"),
    (put("blocks.0.mixer.k.weight", torch.zeros(8, 8)),
     r"k\.weight has shape \[8, 8\], expected \[2, 8\] \(keys, dim\)"),
])
def test_kernels_that_do_not_fit_are_named(change, message, tmp_path):
    save(tiny_model("image-classification", "aft-conv"), tmp_path / "m")
    rewrite(tmp_path / "m", change)
    assert re.search(message, refused(tmp_path / "m")), refused(tmp_path / "m")


def test_a_gain_on_a_single_tap_is_refused(tmp_path):
    save(tiny_model(mixer="aft-conv", kernel=(1,), reparameterised=False), tmp_path / "m")
    for name in ("gain", "bias"):
        rewrite(tmp_path / "m", put("blocks.0.mixer.conv." + name, torch.ones(2)))
    assert "it is a single tap, expected at least 2 different taps" in refused(tmp_path / "m")


def test_a_plain_bias_beyond_60_is_refused_wherever_it_stands(tmp_path):
    save(tiny_model(factorised=False), tmp_path / "m")
    rewrite(tmp_path / "m", lambda t: t["blocks.1.mixer.pos_bias"].__setitem__((2, 9), -60.5))
    message = "blocks.1.mixer.pos_bias: the position bias at [2, 9] is -60.5, expected -60..60"
    assert message in refused(tmp_path / "m")


def test_a_start_embedding_of_a_classifier_is_left_over(tmp_path):
    save(tiny_model("text-classification", "attention"), tmp_path / "m")
    rewrite(tmp_path / "m", put("start_embed", torch.zeros(8)))
    assert "start_embed is left over" in refused(tmp_path / "m")


@pytest.mark.parametrize("spoiled", ["missing", "truncated", "text", "folder"])
def test_files_that_are_none_are_named(spoiled, tmp_path):
    folder = save(tiny_model(), tmp_path / "m")
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.unlink()
    if spoiled == "truncated":
        file.write_bytes(data[:-100])
    elif spoiled == "text":
        file.write_text("no tensors here")
    elif spoiled == "folder":
        file.mkdir()
    assert str(file) in refused(folder)
    assert f"{tmp_path}/nothing/config.json: No such file" in refused(tmp_path / "nothing")


def test_a_configuration_without_end_is_refused_before_memory_is_taken(tmp_path):
    """Shapes are compared before anything is allocated."""
    folder = save(tiny_model(), tmp_path / "m")
    told = json.loads((folder / "config.json").read_text())
    told["dim"], told["input"]["context"] = 8192, 65536
    (folder / "config.json").write_text(json.dumps(told))
    assert "expected" in refused(folder)


# ---- what export refuses ---------------------------------------------------------------------------------------------


def spoilt(name, value, **how):
    model = tiny_model(**how)
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] = value
    return model


@pytest.mark.parametrize("model,options,message", [
    (lambda: spoilt("head.weight", 7e4), dict(dtype="f16"),
     "head.weight holds 70000, expected at most 65504 as f16, or store bf16"),
    (lambda: spoilt("head.weight", torch.nan), {}, "head.weight holds NaN or infinity"),
    (lambda: spoilt("blocks.0.mixer.pos_bias", 61, factorised=False), {}, "position bias at [0, 0] is 61"),
    (tiny_model, dict(dtype="f8"), "dtype is 'f8', expected f32, f16, bf16"),
    (tiny_model, dict(files={"config.json": ""}), "a file cannot be named 'config.json'"),
    (tiny_model, dict(files={"../MODEL_CARD.md": ""}), "a file cannot be named '../MODEL_CARD.md'"),
])
def test_what_cannot_be_served_is_not_written(model, options, message, tmp_path):
    with pytest.raises(ModelError, match=re.escape(message)):
        save(model(), tmp_path / "m", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task,x,message", [
    ("text-generation", np.zeros(13, np.uint8), "input.0 has shape [13], expected [T] of 1 to 12 bytes"),
    ("text-generation", np.zeros(0, np.uint8), "input.0 has shape [0]"),
    ("text-generation", np.zeros((2, 2), np.uint8), "input.0 has shape [2, 2]"),
    ("text-generation", np.zeros(5), "input.0 is float64, expected uint8"),
    ("image-classification", np.zeros((8, 9, 3), np.uint8),
     "input.0 has shape [8, 9, 3], expected [H, W, 3] of whole patches"),
    ("image-classification", np.zeros((8, 8), np.uint8), "input.0 has shape [8, 8]"),
    ("image-classification", np.zeros((4, 8, 3), np.uint8), "input.0 has 8 patches, expected 16"),
])
def test_inputs_that_are_none_are_refused(task, x, message, tmp_path):
    with pytest.raises(ModelError, match=re.escape(message)):
        export(tiny_model(task, "aft-full"), tmp_path / "m", [x])
    assert list(tmp_path.iterdir()) == []


def test_an_export_without_inputs_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no inputs"):
        export(tiny_model(), tmp_path / "m", [])


def test_bytes_and_files_are_kept(tmp_path):
    export(tiny_model(), tmp_path / "m", [b"ab"], files={"MODEL_CARD.md": "# M\n", "sample.jpg": b"\xff\xd8"})
    assert (tmp_path / "m" / "MODEL_CARD.md").read_text() == "# M\n"
    assert (tmp_path / "m" / "sample.jpg").read_bytes() == b"\xff\xd8"
    assert read_cases(tmp_path / "m")[0][0].tobytes() == b"ab"


# ---- what lies there already -----------------------------------------------------------------------------------------


def test_only_model_directories_are_replaced_and_only_if_told(tmp_path):
    target = save(tiny_model(seed=1), tmp_path / "m")
    before = (target / "model.safetensors").read_bytes()
    (target / "old-file").write_text("of the model that was")
    with pytest.raises(ModelError, match="m exists, expected a new name"):
        save(tiny_model(seed=2), target)
    assert (target / "model.safetensors").read_bytes() == before
    save(tiny_model(seed=2), target, overwrite=True)
    assert (target / "model.safetensors").read_bytes() != before
    assert not (target / "old-file").exists()
    assert os.listdir(tmp_path) == ["m"]

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    (tmp_path / "file").write_text("")
    for name in ("photos", "file"):
        with pytest.raises(ModelError, match="exists and is no model directory"):
            save(tiny_model(), tmp_path / name, overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("name", ["two words", "x" * 65, "größe"])
def test_names_that_are_no_models_names_are_refused(name, tmp_path):
    with pytest.raises(ModelError, match="it names the model"):
        save(tiny_model(), tmp_path / name)


def test_an_input_in_another_order_in_memory_is_the_same_input(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (3, 8, 8)).astype(np.uint8).transpose(1, 2, 0)
    export(tiny_model("image-classification", "aft-conv"), tmp_path / "m", [picture])
    (kept, _), = read_cases(tmp_path / "m")
    assert np.array_equal(kept, picture)


def test_folders_above_are_made(tmp_path):
    save(tiny_model(), tmp_path / "new" / "models" / "m")
    assert load(tmp_path / "new" / "models" / "m")


def test_a_model_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file is no folder to write it in"):
        save(tiny_model(), tmp_path / "file" / "models" / "m")


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("moment", ["writing", "renaming"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()], ids=["disk", "key"])
def test_an_export_that_is_cut_short_leaves_what_was_there(there, moment, error, tmp_path, monkeypatch):
    target = tmp_path / "m"
    if there:
        save(tiny_model(seed=1), target)
    before = {p.name: p.read_bytes() for p in target.iterdir()} if there else None
    synced, rename = [], Path.rename

    def failing_sync(path):
        synced.append(path)
        if moment == "writing" and len(synced) == 2:
            raise error
        sync(path)

    def failing_rename(path, to):
        if moment == "renaming" and to == target and not path.name.endswith(".old"):
            raise error
        return rename(path, to)

    monkeypatch.setitem(export.__globals__, "sync", failing_sync)  # aft_train.export is the function, not the file
    monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises(type(error)):
        save(tiny_model(seed=2), target, overwrite=there)
    assert os.listdir(tmp_path) == (["m"] if there else [])
    if there:
        assert {p.name: p.read_bytes() for p in target.iterdir()} == before


def test_a_copy_of_a_directory_is_a_model_of_its_own(tmp_path):
    """Nothing stays mapped: a loaded model outlives its files."""
    model = load(save(tiny_model(), tmp_path / "m"))
    before = logits_of(model, np.arange(5, dtype=np.uint8))
    shutil.rmtree(tmp_path / "m")
    np.testing.assert_array_equal(logits_of(model, np.arange(5, dtype=np.uint8)), before)
