import argparse
import json
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from test_pictures import picture, write_folder
from tiny import tiny_model

from aft_train import ModelError, export, load
from aft_train.check import check, read_cases
from aft_train.convert import main
from aft_train.deit import read_checkpoint, to_aft_conv, vit
from aft_train.export import assemble, logits_of, sample_inputs
from aft_train.model_config import to_json


def random_vit(dim=192, depth=12, patch=16, grid=14, classes=10, hidden=None, *, token=True, token_position=True,
               qkv_bias=True, scale=(), seed=0):
    """A state_dict in timm's vision_transformer layout; scale: the names of the layer scales, of both branches."""
    g = torch.Generator().manual_seed(seed)
    rand = lambda *shape, std=0.02: torch.randn(*shape, generator=g) * std
    hidden = hidden or 4 * dim
    state = {"patch_embed.proj.weight": rand(dim, 3, patch, patch), "patch_embed.proj.bias": rand(dim),
             "pos_embed": rand(1, grid * grid + (token and token_position), dim, std=0.5)}
    if token:
        state["cls_token"] = rand(1, 1, dim, std=1.0)
    for i in range(depth):
        layers = {"norm1": (dim,), "attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim), "norm2": (dim,),
                  "mlp.fc1": (hidden, dim), "mlp.fc2": (dim, hidden)}
        for name, shape in layers.items():
            state[f"blocks.{i}.{name}.weight"] = rand(*shape, std=0.1) + (len(shape) == 1)
            if name != "attn.qkv" or qkv_bias:
                state[f"blocks.{i}.{name}.bias"] = rand(shape[0], std=0.1)
        for name in scale:
            state[f"blocks.{i}.{name}"] = rand(dim, std=1.0)
    state |= {"norm.weight": 1 + rand(dim, std=0.1), "norm.bias": rand(dim, std=0.1),
              "head.weight": rand(classes, dim, std=0.1), "head.bias": rand(classes)}
    return state


def run_vit(state, pixels, heads, activation=F.gelu):
    """A vision transformer by its papers' equations, in float64. pixels: uint8 [H, W, 3] -> logits [classes]

    Dosovitskiy et al. 2021, eq. 1 to 4; Touvron et al. 2021 (CaiT), eq. 4 for the layer scale.
    """
    p = {name: t.double() for name, t in state.items()}
    dim = p["norm.weight"].shape[0]
    norm = lambda x, name: F.layer_norm(x, (dim,), p[name + ".weight"], p[name + ".bias"], 1e-6)
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p.get(name + ".bias"))
    mean, std = torch.tensor([0.485, 0.456, 0.406]).double(), torch.tensor([0.229, 0.224, 0.225]).double()
    x = ((torch.tensor(pixels).double() / 255 - mean) / std).permute(2, 0, 1)[None]
    x = F.conv2d(x, p["patch_embed.proj.weight"], p["patch_embed.proj.bias"],
                 stride=p["patch_embed.proj.weight"].shape[2:])
    x = x[0].flatten(1).T
    if "cls_token" in p and p["pos_embed"].shape[1] == len(x):
        x = torch.cat([p["cls_token"][0], x + p["pos_embed"][0]])
    else:
        x = torch.cat([p["cls_token"][0], x] if "cls_token" in p else [x]) + p["pos_embed"][0]
    depth = len([name for name in p if name.endswith("norm1.weight")])
    for i in range(depth):
        at = f"blocks.{i}."
        q, k, v = linear(norm(x, at + "norm1"), at + "attn.qkv").view(len(x), 3, heads, -1).permute(1, 2, 0, 3)
        weights = torch.softmax(q @ k.transpose(1, 2) / (dim // heads) ** 0.5, dim=-1)
        y = linear((weights @ v).transpose(0, 1).reshape(len(x), dim), at + "attn.proj")
        x = x + y * p.get(at + "ls1.gamma", p.get(at + "gamma_1", torch.ones(())))
        y = linear(activation(linear(norm(x, at + "norm2"), at + "mlp.fc1")), at + "mlp.fc2")
        x = x + y * p.get(at + "ls2.gamma", p.get(at + "gamma_2", torch.ones(())))
    x = norm(x, "norm")
    return linear(x[0] if "cls_token" in p else x.mean(0), "head").float().numpy()


def small_vit(**how):
    return random_vit(**{**dict(dim=16, depth=2, patch=4, grid=3, classes=3), **how})


# ---- deit ------------------------------------------------------------------------------------------------------------


def test_deit_tiny_is_served_as_the_same_function(tmp_path, capsys, aft):
    state = random_vit()
    torch.save({"model": state}, tmp_path / "deit_tiny.pth")
    assert main(["deit", str(tmp_path / "deit_tiny.pth"), str(tmp_path / "m")]) == 0
    assert "attention, 12 blocks, dim 192, 3 heads, 224 x 224 pixels, 10 classes, 5,526,346 parameters as f32" in (
        capsys.readouterr().out)
    model = load(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["input"]["resize_to"] == 256 and config["input"]["interpolation"] == "bicubic"
    assert config["norm_eps"] == 1e-6 and config["pooling"] == "class-token"
    for x, logits in read_cases(tmp_path / "m"):
        want = run_vit(state, x, heads=3)
        assert want.std() > 0.1
        np.testing.assert_allclose(logits, want, atol=1e-5)
        np.testing.assert_allclose(logits_of(model, x), want, atol=1e-4)
    run = subprocess.run([aft, "verify", str(tmp_path / "m")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("how", [
    dict(scale=("ls1.gamma", "ls2.gamma")), dict(scale=("gamma_1", "gamma_2")), dict(token_position=False),
    dict(token=False), dict(qkv_bias=False), dict(hidden=40), dict(hidden=8, scale=("ls2.gamma",)),
], ids=lambda how: ",".join(f"{k}={v}" for k, v in how.items()).replace(" ", ""))
def test_what_the_format_can_say_is_folded_exactly(how):
    state = small_vit(**how)
    model = assemble(*vit(state, heads=2))
    for x in sample_inputs(model.config):
        np.testing.assert_allclose(logits_of(model, x), run_vit(state, x, heads=2), atol=1e-5)


def test_a_vit_with_sima_in_place_of_softmax_keeps_all_but_the_mixer(tmp_path):
    safetensors.torch.save_file(small_vit(), tmp_path / "v.safetensors")
    for to in ("sima", "attention"):
        assert main(["deit", str(tmp_path / "v.safetensors"), str(tmp_path / to), "--to", to, "--heads", "2"]) == 0
    sima, softmax = load(tmp_path / "sima"), load(tmp_path / "attention")
    assert (sima.config.mixer.type, sima.config.mixer.norm) == ("sima", "l1")
    assert all(torch.equal(p, softmax.state_dict()[name]) for name, p in sima.state_dict().items())
    assert main(["deit", str(tmp_path / "v.safetensors"), str(tmp_path / "x"), "--to", "sima", "--kernel", "3"]) == 2


def test_pictures_that_are_no_squares_need_their_size():
    state = small_vit()
    state["pos_embed"] = state["pos_embed"][:, :7]
    with pytest.raises(ModelError, match="pos_embed has 7 positions, which make no square of patches: give .* --size"):
        vit(state, heads=2)
    with pytest.raises(ModelError, match="expected those of 8 x 20 pixels in patches of 4 x 4"):
        vit(state, heads=2, size=(8, 20))
    config, tensors = vit(state, heads=2, size=(8, 12))
    assert config.grid == (2, 3) and tensors["pos_embed"].shape == (7, 16)


def test_options_go_into_the_configuration(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\nship\n")
    safetensors.torch.save_file(small_vit(), tmp_path / "v.safetensors")
    assert main(["deit", str(tmp_path / "v.safetensors"), str(tmp_path / "m"), "--heads", "4", "--dtype", "f16",
                 "--labels", str(tmp_path / "labels.txt"), "--mean", "0.5", "0.5", "0.5", "--std", "0.5", "0.5", "0.5",
                 "--resize-to", "14", "--interpolation", "bilinear", "--activation", "gelu_tanh",
                 "--norm-eps", "1e-5"]) == 0
    c = load(tmp_path / "m").config
    assert (c.labels, c.mixer.heads, c.mean, c.std) == (["cat", "dog", "ship"], 4, (0.5,) * 3, (0.5,) * 3)
    assert (c.resize_to, c.interpolation, c.activation, c.norm_eps) == (14, "bilinear", "gelu_tanh", 1e-5)


def test_aft_conv_takes_over_all_but_positions_queries_and_keys(tmp_path, capsys, aft):
    state = small_vit(scale=("ls1.gamma", "ls2.gamma"))
    torch.save(state, tmp_path / "v.pth")
    files = [str(tmp_path / "v.pth"), str(tmp_path / "m")]
    assert main(["deit", *files, "--to", "aft-conv", "--heads", "2", "--kernel", "3"]) == 0
    assert "fine-tune it" in capsys.readouterr().out
    model, old = load(tmp_path / "m"), vit(state, heads=2)[1]
    c = model.config
    assert (c.mixer.type, c.mixer.heads, c.mixer.kernel, c.pooling) == ("aft-conv", 16, (3, 3), "mean")
    kept = model.state_dict().keys() & old.keys()
    new = model.state_dict().keys() - old.keys()
    assert {name.split(".", 2)[-1] for name in new} == {"mixer.conv.weight", "mixer.conv.gain", "mixer.conv.bias"}
    for name in kept:
        same = model.state_dict()[name].shape == old[name].shape and torch.equal(model.state_dict()[name], old[name])
        assert same != (".mixer.q." in name or ".mixer.k." in name), name
    assert old.keys() - kept == {"cls_token", "pos_embed"}
    run = subprocess.run([aft, "verify", str(tmp_path / "m")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_aft_conv_has_32_heads_where_they_divide():
    for dim, heads in ((192, 32), (48, 24), (100, 25)):
        config, tensors = vit(random_vit(dim, 1, 4, 2), heads=1)
        assert to_aft_conv(config, tensors).config.mixer.heads == heads
    a, b, c = (to_aft_conv(config, tensors, seed=seed).state_dict() for seed in (0, 0, 1))
    name = "blocks.0.mixer.q.weight"
    assert torch.equal(a[name], b[name]) and not torch.equal(a[name], c[name])


@pytest.mark.parametrize("name,shape,message", [
    ("dist_token", (1, 1, 16), "dist_token is not served: a distilled DeiT has a second token and head"),
    ("head_dist.weight", (3, 16), "head_dist.weight is not served: a distilled DeiT"),
    ("reg_token", (1, 4, 16), "reg_token is not served: register tokens"),
    ("norm_pre.weight", (16,), "norm_pre.weight is not served: a norm before the blocks"),
    ("fc_norm.weight", (16,), "fc_norm.weight is not served: a norm behind the pooling"),
    ("patch_embed.proj.0.0.weight", (8, 3, 3, 3), "patch_embed.proj.0.0.weight is not served: patches made by several"),
    ("cls_attn_blocks.0.norm1.weight", (8,), "cls_attn_blocks.0.norm1.weight is not served: local patch interaction"),
    ("attn_pool.q.weight", (16, 16), "attn_pool.q.weight is not served: pooling by attention"),
    ("blocks.1.attn.q_norm.weight", (8,), "blocks.1.attn.q_norm.weight is not served: norms inside of attention"),
    ("blocks.0.mlp.w12.weight", (64, 16), "blocks.0.mlp.w12.weight is not served: a gated MLP"),
    ("blocks.0.attn.q_bias", (16,), "blocks.0.attn.q_bias is not served: relative or rotary positions"),
    ("blocks.0.mlp.extra", (16,), "blocks.0.mlp.extra is left over: a plain vision transformer has no such tensor"),
    ("cls_token", (1, 2, 16), "cls_token has shape [1, 2, 16], expected [1, 1, 16]"),
    ("patch_embed.proj.weight", (16, 1, 4, 4),
     "patch_embed.proj.weight has shape [16, 1, 4, 4], expected [any, 3, any, any]"),
    ("patch_embed.proj.weight", (16, 3, 0, 4), "patch_embed.proj.weight is empty"),
    ("blocks.1.mlp.fc2.weight", (16, 32), "blocks.1.mlp.fc2.weight has shape [16, 32], expected [16, 64]"),
    ("pos_embed", None, "pos_embed is missing, expected shape [1, any, 16]"),
    ("blocks.1.norm1.bias", None, "blocks.1.norm1.bias is missing, expected shape [16]"),
    ("head.weight", None, "head.weight is missing, expected shape [any, 16]"),
])
def test_what_is_no_plain_vit_is_refused_by_name(name, shape, message, tmp_path, capsys):
    state = small_vit()
    state.pop(name, None)
    if shape:
        state[name] = torch.zeros(shape)
    torch.save(state, tmp_path / "v.pth")
    assert main(["deit", str(tmp_path / "v.pth"), str(tmp_path / "m"), "--heads", "2"]) == 2
    assert capsys.readouterr().err.startswith(f"aft_train.convert: {message}")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("change,options,message", [
    (lambda s: s, [], "dim is 16, no multiple of DeiT's 64 channels a head: give --heads"),
    (lambda s: s, ["--heads", "3"], "mixer.heads is 3, expected a divisor of dim, 16"),
    (lambda s: {**s, "head.bias": torch.full((3,), torch.nan)}, ["--heads", "2"], "head.bias holds NaN"),
    (lambda s: {**s, "head.bias": torch.zeros(3, dtype=torch.int64)}, ["--heads", "2"], "head.bias is int64"),
    (lambda s: {k: t for k, t in s.items() if "blocks" not in k}, ["--heads", "2"], "there are no blocks"),
    (lambda s: s, ["--heads", "2", "--labels", "{}/two"], "2 labels for a head of 3 classes"),
    (lambda s: s, ["--heads", "2", "--labels", "{}/none"], "none: No such file"),
    (lambda s: s, ["--heads", "2", "--labels", "{}/gap"], "gap: line 2 is empty"),
    (lambda s: s, ["--heads", "2", "--std", "0", "1", "1"], "input.std is (0.0, 1.0, 1.0)"),
    (lambda s: s, ["--heads", "2", "--to", "aft-conv", "--conv-heads", "3"], "mixer.heads is 3"),
])
def test_options_that_do_not_fit_are_refused(change, options, message, tmp_path, capsys):
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "gap").write_text("a\n\nb\n")
    torch.save(change(small_vit()), tmp_path / "v.pth")
    assert main(["deit", str(tmp_path / "v.pth"), str(tmp_path / "m"), *[o.format(tmp_path) for o in options]]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_wrappers_of_checkpoints_are_opened(tmp_path):
    state = small_vit()
    for name, saved in (("bare", state), ("model", {"model": state, "epoch": 3, "args": argparse.Namespace(lr=1e-3)}),
                        ("state_dict", {"state_dict": {"module." + k: t for k, t in state.items()}})):
        torch.save(saved, tmp_path / name)
        found = read_checkpoint(tmp_path / name)
        assert found.keys() == state.keys() and all(torch.equal(found[k], t) for k, t in state.items())


class Anything:
    """What a pickle may hold and no checkpoint should."""


@pytest.mark.parametrize("content,message", [
    (None, "No such file"), (b"", "is no checkpoint"), (b"garbage" * 10, "is no checkpoint"),
    (Anything(), "is no checkpoint of tensors alone"), ({"model": {}}, "expected tensors by name"),
    ({"a": 1}, "expected tensors by name"), ({0: torch.ones(2)}, "expected tensors by name"),
    ({"w": torch.ones(2).to_sparse()}, "w is sparse, expected a dense tensor"), ([1], "expected tensors by name"),
])
def test_what_is_no_checkpoint_is_refused(content, message, tmp_path, capsys):
    if isinstance(content, bytes):
        (tmp_path / "v.pth").write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / "v.pth")
    assert main(["deit", str(tmp_path / "v.pth"), str(tmp_path / "m")]) == 2
    err = capsys.readouterr().err
    assert message in err and str(tmp_path / "v.pth") in err and err.count("\n") == 1


# ---- dtype -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model_dir(tmp_path):
    model = tiny_model()
    export(model, tmp_path / "m", sample_inputs(model.config),
           files={"MODEL_CARD.md": "# A card\n", "sample.txt": "hello"})
    return tmp_path / "m"


def test_another_precision_keeps_the_rest(model_dir, tmp_path, capsys):
    (model_dir / "folder").mkdir()
    assert main(["dtype", str(model_dir), str(tmp_path / "b"), "--dtype", "bf16"]) == 0
    out, err = capsys.readouterr()
    assert f"{load(model_dir).parameter_count():,} parameters as bf16" in out
    assert "folder is no file and stays behind" in err
    assert (tmp_path / "b" / "MODEL_CARD.md").read_text() == "# A card\n"
    assert (tmp_path / "b" / "sample.txt").read_text() == "hello"
    before, after = ((d / "model.safetensors").stat().st_size for d in (model_dir, tmp_path / "b"))
    assert after < 0.7 * before
    assert check(tmp_path / "b")[0] < 2e-5
    for (x, old), (y, new) in zip(read_cases(model_dir), read_cases(tmp_path / "b"), strict=True):
        assert np.array_equal(x, y) and not np.array_equal(old, new)  # the logits are those of the rounded weights


def test_a_precision_that_overflows_is_refused(tmp_path, capsys):
    model = tiny_model()
    with torch.no_grad():
        model.head.bias[5] = 1e5
    export(model, tmp_path / "m", sample_inputs(model.config))
    assert main(["dtype", str(tmp_path / "m"), str(tmp_path / "h"), "--dtype", "f16"]) == 2
    assert "head.bias holds 100000, expected at most 65504 as f16, or store bf16" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()


def test_models_without_cases_get_some(model_dir, tmp_path):
    (model_dir / "cases.safetensors").unlink()
    assert main(["dtype", str(model_dir), str(tmp_path / "h"), "--dtype", "f16"]) == 0
    assert check(tmp_path / "h")[1] == 4


def test_targets_are_replaced_only_if_told(model_dir, tmp_path, capsys):
    for options, code in (([], 0), ([], 2), (["--overwrite"], 0)):
        assert main(["dtype", str(model_dir), str(tmp_path / "h"), "--dtype", "f16", *options]) == code
    assert "h exists, expected a new name" in capsys.readouterr().err


def test_what_a_precision_costs_is_measured(model_dir, tmp_path, capsys):
    (tmp_path / "text").write_bytes(bytes(range(200)))
    dirs, text = [str(model_dir), str(tmp_path / "b")], str(tmp_path / "text")
    assert main(["dtype", *dirs, "--dtype", "bf16", "--data", text]) == 0
    _, first, second, difference = capsys.readouterr().out.splitlines()
    a, b = float(first.split()[0]), float(second.split()[0])
    assert "bits per byte" in first and str(tmp_path / "b") in second
    assert abs(float(difference.split()[0]) - (b - a)) < 2e-4 and "second less first" in difference


# ---- quality ---------------------------------------------------------------------------------------------------------


def test_two_models_are_compared(model_dir, tmp_path, capsys):
    (tmp_path / "text").write_bytes(bytes(range(100)))
    export(tiny_model(seed=3), tmp_path / "other", [b"a"])
    assert main(["quality", str(model_dir), str(tmp_path / "other"), "--data", str(tmp_path / "text"), "--start", "10",
                 "--length", "50", "--warm", "4"]) == 0
    first, second, difference = capsys.readouterr().out.splitlines()
    assert "(50 bytes in windows of 12, after 4 bytes of context or more)" in first
    assert float(difference.split()[0]) == pytest.approx(float(second.split()[0]) - float(first.split()[0]), abs=2e-4)


def test_accuracy_is_printed(tmp_path, capsys):
    model = tiny_model("image-classification", "aft-conv", model=dict(pos_embed=False))
    export(model, tmp_path / "m", sample_inputs(model.config))
    names = [f"test/{name}/{i}.png" for i in range(4) for name in ("cat", "dog", "ship")]
    write_folder(tmp_path / "p", {name: picture(i) for i, name in enumerate(names)})
    assert main(["quality", str(tmp_path / "m"), "--data", str(tmp_path / "p"), "--part", "test", "--limit", "6"]) == 0
    assert " % right   " in (out := capsys.readouterr().out) and "(6 pictures)" in out


@pytest.mark.parametrize("options,message", [
    (["--data", "{}/none"], "none: No such file"),
    (["--data", "{}/text", "--start", "100"], "--start 100 is behind the 100 bytes"),
    (["--data", "{}/text", "--start", "99"], "1 bytes to score, expected 2 or more"),
    (["--data", "{}/text", "--warm", "12"], "a warm context of 12 bytes, expected fewer than the model's context, 12"),
    (["--data", "{}/text", "--limit", "3"], "--limit means nothing for text-generation"),
    (["{}/nothing", "--data", "{}/text"], "nothing/config.json: No such file"),
    (["{}/classifier", "--data", "{}/text"], "classifier is for text-classification, expected text-generation"),
])
def test_data_that_does_not_fit_is_refused(options, message, model_dir, tmp_path, capsys):
    (tmp_path / "text").write_bytes(bytes(100))
    export(tiny_model("text-classification", "attention"), tmp_path / "classifier", [b"a"])
    assert main(["quality", str(model_dir), *[o.format(tmp_path) for o in options]]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_classifiers_of_texts_are_measured_too(tmp_path, capsys):
    export(tiny_model("text-classification", "attention"), tmp_path / "m", [b"a"])
    (tmp_path / "t.jsonl").write_text("".join(f'{{"text": "{c}", "label": "dog"}}\n' for c in "abcd"))
    assert main(["quality", str(tmp_path / "m"), "--data", str(tmp_path / "t.jsonl"), "--limit", "3"]) == 0
    assert "% right" in (told := capsys.readouterr().out) and "(3 texts)" in told


@pytest.mark.parametrize("args", [
    [], ["deit"], ["dtype", "a", "b"], ["dtype", "a", "b", "--dtype", "f8"], ["quality", "a"],
    ["quality", "a", "--data", "b", "--start", "-1"], ["deit", "a", "b", "--heads", "0"],
])
def test_wrong_usage_exits_with_2(args):
    with pytest.raises(SystemExit) as e:
        main(args)
    assert e.value.code == 2


def test_a_disk_that_is_full_is_a_failure(model_dir, tmp_path, capsys, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")
    monkeypatch.setitem(export.__globals__, "sync", full)
    assert main(["dtype", str(model_dir), str(tmp_path / "h"), "--dtype", "f16"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()


# ---- state-dict ------------------------------------------------------------------------------------------------------


def own_layout(model):
    """A Model's tensors as somebody else may have them: q, k and v in one matrix, linear layers transposed. -> (state,
    rules)"""
    state, rules = {}, {}
    for name, p in model.state_dict().items():
        inside = name.split("mixer.")[-1]
        if inside.split(".")[0] in "qkv" and ".mixer." in name:
            fused = name.replace(f"mixer.{inside[0]}.", "attn.c_attn.")
            state[fused] = torch.cat([model.state_dict()[name.replace(f"mixer.{inside[0]}.", f"mixer.{c}.")]
                                      for c in "qkv"])
            rules[name] = {"from": fused, "part": ["qkv".index(inside[0]), 3]}
        elif ".mlp." in name and p.dim() == 2:
            state["m." + name], rules[name] = p.T.contiguous(), {"from": "m." + name, "transpose": True}
        else:
            state["m." + name], rules[name] = p, "m." + name
    every = lambda text: text.replace("blocks.0.", "blocks.{i}.")
    for name in [name for name in rules if "blocks.0." in name]:
        rule = rules.pop(name)
        rules[every(name)] = every(rule) if isinstance(rule, str) else {**rule, "from": every(rule["from"])}
    return state, {name: rule for name, rule in rules.items() if "blocks.1." not in name}


@pytest.fixture
def own(tmp_path):
    """A checkpoint in another layout, with one tensor that is not the model's, its rules and its configuration."""
    model = tiny_model("text-generation", "attention", depth=2)
    state, rules = own_layout(model)
    torch.save({"state_dict": {**state, "m.steps": torch.zeros(3)}}, tmp_path / "own.pt")
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    (tmp_path / "config.json").write_text(to_json(model.config))
    return model, rules


def converted(tmp_path, *more):
    return main(["state-dict", str(tmp_path / "own.pt"), str(tmp_path / "out"), "--map", str(tmp_path / "rules.json"),
                 "--config", str(tmp_path / "config.json"), *more])


def test_a_checkpoint_of_ones_own_is_mapped_by_rules(own, tmp_path, capsys, aft):
    assert converted(tmp_path) == 0
    assert "1 tensors of the checkpoint are not used: m.steps" in capsys.readouterr().err
    for name, p in load(tmp_path / "out").state_dict().items():
        assert torch.equal(p, own[0].state_dict()[name]), name
    subprocess.run([aft, "verify", str(tmp_path / "out")], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("change, wanted", [
    (lambda rules: rules.pop("blocks.{i}.mlp.fc1.weight"),
     "blocks.1.mlp.fc1.weight has no rule, expected shape [32, 8]; of that shape transposed: m.blocks.0.mlp.fc1."),
    (lambda rules: rules["blocks.{i}.mlp.fc1.weight"].pop("transpose"),
     "blocks.0.mlp.fc1.weight comes with shape [8, 32], expected shape [32, 8]"),
    (lambda rules: rules.update({"norm.bias": "m.nrom.bias"}),
     "norm.bias: the checkpoint has no m.nrom.bias; near: m.norm.bias"),
    (lambda rules: rules.update({"norm.bias": {"from": "m.norm.bias", "part": [0, 3]}}),
     "norm.bias: m.norm.bias has shape [8], expected one of 3 equal parts"),
    (lambda rules: rules.update({"norm.bias": 5}), "norm.bias has no rule, expected the name of a tensor"),
    (lambda rules: rules.update({"more.bias": "m.norm.bias"}), "more.bias is left over"),
])
def test_what_does_not_fit_is_told_with_what_would(own, change, wanted, tmp_path, capsys):
    change(own[1])
    (tmp_path / "rules.json").write_text(json.dumps(own[1]))
    assert converted(tmp_path) == 2
    assert wanted in capsys.readouterr().err and not (tmp_path / "out").exists()
