import dataclasses
import json
import re

import pytest
from conftest import ROOT
from tiny import KINDS, tiny_config

from aft_train.model_config import KEYS, ConfigError, from_json, replace, to_json

GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*/config.json")) + sorted(
    (ROOT / "weights" / "models").glob("*/config.json"))


@pytest.mark.parametrize("task,mixer", KINDS)
def test_what_is_written_reads_back(task, mixer):
    config = tiny_config(task, mixer, mlp_ratio=2, activation="relu", norm_eps=1e-6, share_layers=True)
    again = from_json(to_json(config))
    for key in ("task", "dim", "depth", "mlp_ratio", "activation", "norm_eps", "share_layers", "pooling", "labels",
                "size", "patch", "mean", "std", "interpolation", "context", "tokens", "grid", "outputs", "causal"):
        assert getattr(again, key) == getattr(config, key), key
    assert again.mixer.type == mixer
    assert to_json(again) == to_json(config)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.parent.name)
def test_served_configurations_are_read(path):
    config, told = from_json(path.read_text()), json.loads(path.read_text())
    assert (config.task, config.dim, config.depth) == (told["task"], told["dim"], told["depth"])
    assert config.mixer.query_gate is told["mixer"].get("query_gate", True)
    assert config.mixer.global_sum is told["mixer"].get("global", True)


def test_defaults():
    text = {"format": "aftd-model", "version": 1, "task": "image-classification", "dim": 8, "depth": 1, "labels": ["a"],
            "mixer": {"type": "aft-conv", "heads": 2, "kernel": 5},
            "input": {"kind": "image", "size": [8, 12], "patch": [4, 4], "mean": [0, 0, 0], "std": [1, 1, 1]}}
    config = from_json(json.dumps(text))
    assert (config.mlp_ratio, config.activation, config.norm_eps, config.pooling) == (4, "gelu", 1e-5, "mean")
    assert (config.mixer.kernel, config.interpolation, config.share_layers) == ((5, 5), "bicubic", False)
    assert (config.grid, config.tokens, config.outputs) == ((2, 3), 6, 1)
    assert json.loads(to_json(config))["input"]["resize_to"] == 8  # the shorter side


def test_a_window_of_0_is_aft_simple():
    told = json.loads(to_json(tiny_config("text-generation", "aft-local")))
    told["mixer"]["window"] = 0
    assert from_json(json.dumps(told)).mixer.type == "aft-simple"
    told["mixer"]["global"] = False
    with pytest.raises(ConfigError, match="mixer.window is 0, expected 1 or more where mixer.global is false"):
        from_json(json.dumps(told))


def test_a_causal_kernel_may_be_as_wide_as_the_context():
    told = json.loads(to_json(tiny_config("text-generation", "aft-conv")))
    told["mixer"]["kernel"] = 65536
    assert from_json(json.dumps(told)).mixer.kernel == (65536,)
    told["mixer"]["kernel"] = 65537
    with pytest.raises(ConfigError, match="mixer.kernel is .65537,., expected K, an integer 1..65536"):
        from_json(json.dumps(told))


def test_class_token_is_counted():
    assert tiny_config("image-classification", "aft-full", pooling="class-token").tokens == 17
    assert tiny_config("text-classification", "aft-full", pooling="class-token").tokens == 12


def test_keys_that_nobody_knows_are_named(capsys):
    told = json.loads(to_json(tiny_config()))
    told["mixer"]["flavour"] = 1
    from_json(json.dumps(told))
    assert capsys.readouterr().err == 'config.json: unknown key "mixer.flavour" is ignored\n'


def test_a_chat_template_is_kept():
    told = json.loads(to_json(tiny_config("text-generation", "aft-local")))
    template = {"system": "{content}\n", "user": "Q: {content}\n", "assistant": "A: {content}\n", "reply": "A: ",
                "stop": ["\n"]}
    assert "chat_template" not in told
    assert json.loads(to_json(from_json(json.dumps(told | {"chat_template": template}))))["chat_template"] == template
    told = json.loads(to_json(tiny_config("text-classification", "fastformer")))
    assert "chat_template" not in json.loads(to_json(from_json(json.dumps(told | {"chat_template": template}))))


MISSING = object()
REFUSED = [  # (task, mixer, key, value, what the message has)
    ("text-generation", "aft-local", "format", "gguf", "format"),
    ("text-generation", "aft-local", "version", 2, "'aftd-model' and 2"),
    ("text-generation", "aft-local", "task", "poetry", "task is 'poetry'"),
    ("text-generation", "aft-local", "task", MISSING, "task is missing, expected a string"),
    ("text-generation", "aft-local", "dim", "8", "dim is '8', expected an integer"),
    ("text-generation", "aft-local", "dim", True, "dim is True"),
    ("text-generation", "aft-local", "dim", 0, "dim is 0, expected an integer 1..8192"),
    ("text-generation", "aft-local", "depth", 10**9, "depth is 1000000000, expected an integer 1..256"),
    ("text-generation", "aft-local", "mlp_ratio", 10**6, "mlp_ratio"),
    ("text-generation", "aft-local", "activation", "swish", "activation is 'swish', expected one of gelu"),
    ("text-generation", "aft-local", "norm_eps", 0, "norm_eps is 0.0"),
    ("text-generation", "aft-local", "norm_eps", "small", "norm_eps is 'small', expected a number"),
    ("text-generation", "aft-local", "norm_eps", float("nan"), "norm_eps is nan"),
    ("text-generation", "aft-local", "share_layers", 1, "share_layers is 1, expected true or false"),
    ("text-generation", "aft-local", "labels", ["a"], "labels is ['a'], expected none"),
    ("text-generation", "aft-local", "chat_template", "{{ messages }}", "expected an object"),
    ("text-generation", "aft-local", "mixer", "aft-local", "mixer is 'aft-local', expected an object"),
    ("text-generation", "aft-local", "mixer.type", "mamba", "mixer.type is 'mamba'"),
    ("text-generation", "aft-local", "mixer.type", MISSING, "mixer.type is missing"),
    ("text-generation", "aft-local", "mixer.window", MISSING, "mixer.window is missing"),
    ("text-generation", "aft-local", "mixer.window", -1, "mixer.window is -1, expected an integer 0..65536"),
    ("text-generation", "aft-local", "mixer.query_gate", "no", "mixer.query_gate is 'no', expected true or false"),
    ("text-generation", "attention", "mixer.type", "sima", "mixer.type is 'sima', expected a mixer with a causal form"),
    ("text-generation", "attention", "mixer.heads", MISSING, "mixer.heads is missing"),
    ("text-generation", "attention", "mixer.heads", 3, "mixer.heads is 3, expected a divisor of dim, 8"),
    ("text-generation", "aft-conv", "mixer.kernel", [3, 3], "mixer.kernel is (3, 3), expected K"),
    ("text-generation", "aft-conv", "mixer.kernel", MISSING, "mixer.kernel is missing"),
    ("image-classification", "aft-conv", "mixer.kernel", [3], "mixer.kernel is (3,), expected K or [kh, kw]"),
    ("image-classification", "aft-conv", "mixer.kernel", 0, "mixer.kernel"),
    ("image-classification", "aft-conv", "pooling", "class-token", "pooling is 'class-token', expected \"mean\""),
    ("image-classification", "aft-full", "pooling", "max", "pooling is 'max'"),
    ("image-classification", "aft-full", "labels", [], "labels is []"),
    ("image-classification", "aft-full", "labels", "abc", "labels is 'abc', expected a list"),
    ("image-classification", "aft-full", "labels", ["x" * 257], "labels"),
    ("image-classification", "aft-full", "input.kind", "bytes", "input.kind is 'bytes', expected \"image\""),
    ("image-classification", "aft-full", "input.size", [8], "input.size is (8,), expected [H, W]"),
    ("image-classification", "aft-full", "input.size", MISSING, "input.size is missing"),
    ("image-classification", "aft-full", "input.patch", [3, 2], "input.patch is (3, 2), expected divisors"),
    ("image-classification", "aft-full", "input.mean", [0, 0], "input.mean is (0, 0), expected 3 numbers"),
    ("image-classification", "aft-full", "input.mean", ["a", 0, 0], "input.mean"),
    ("image-classification", "aft-full", "input.std", [1, 0, 1], "input.std is (1, 0, 1)"),
    ("image-classification", "aft-full", "input.resize_to", 5000, "input.resize_to is 5000"),
    ("image-classification", "aft-full", "input.interpolation", "area", "input.interpolation is 'area'"),
    ("text-classification", "fastformer", "input.context", MISSING, "input.context is missing"),
    ("text-classification", "fastformer", "input.context", 65537, "input.context is 65537"),
    ("image-generation", "aft-local", "input.context", 13, "input.context is 13, expected H * W * 3 = 12"),
]


@pytest.mark.parametrize("task,mixer,key,value,message", REFUSED, ids=[f"{r[2]}={r[3]!s:.20}" for r in REFUSED])
def test_wrong_keys_are_refused(task, mixer, key, value, message):
    told = json.loads(to_json(tiny_config(task, mixer)))
    *folders, last = key.split(".")
    at = told
    for folder in folders:
        at = at[folder]
    if value is MISSING:
        del at[last]
    else:
        at[last] = value
    with pytest.raises(ConfigError) as e:
        from_json(json.dumps(told))
    assert message in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100000, "null", b"\xff\xfe{", '{"task": 1, "task": 2}',
                                  '{"format": "aftd-model"}'.encode("utf-16")], ids=lambda t: repr(t)[:8])
def test_what_is_no_configuration_is_refused(text):
    with pytest.raises(ConfigError):
        from_json(text)


def test_heads_mean_nothing_to_mixers_without(capsys):
    told = json.loads(to_json(tiny_config("text-generation", "aft-local")))
    told["mixer"]["heads"] = 3  # no divisor of 8
    assert from_json(json.dumps(told)).mixer.type == "aft-local"


def test_replace_checks_anew():
    config = tiny_config()
    assert dataclasses.asdict(replace(config, dim=16))["dim"] == 16
    with pytest.raises(ConfigError):
        replace(config, dim=-1)


def test_the_document_has_every_key_and_no_other():
    """The first column of each table of keys in weights/FORMAT.md, against the keys that are read."""
    text = (ROOT / "weights" / "FORMAT.md").read_text()
    for prefix, heading in (("", "## config.json"), ("mixer.", "### mixer"), ("input.", "### input")):
        table = re.search(rf"^{heading}$.*?\n\n(\|.*?)\n\n", text, re.M | re.S).group(1)
        told = {key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])}
        assert told == set(KEYS[prefix]) - {"factorised", "reparameterised"}, heading
