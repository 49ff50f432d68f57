"""The papers' presets and ablations: as weights/PAPERS.md has them, and each learns, is exported and served."""
import subprocess

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

from aft_train import images, load, papers, pixels, text
from aft_train.check import check
from aft_train.model_config import to_json

DOCUMENT = (ROOT / "weights" / "PAPERS.md").read_text()
TRAINERS = {"pictures": (images, papers.pictures()), "text": (text, papers.text()), "pixels": (pixels, papers.pixels())}
ROWS = [(verb, name) for verb, (_, rows) in TRAINERS.items() for name in rows]
FEW = ["--depth", "1", "--batch", "2", "--steps", "2", "--threads", "1", "--train-dtype", "f32"]
DATA = {"pictures": ["--workers", "0"], "text": ["--valid-limit", "1100"],
        "pixels": ["--valid-limit", "1", "--test-limit", "1"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """{verb: what it learns}: 6 pictures of two classes, 12,000 random bytes."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(1)
    for i in range(6):
        path = folder / "pictures" / ("dark", "light")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    (folder / "text").write_bytes(rng.integers(0, 256, 12000, dtype=np.uint8).tobytes())
    return {"pictures": str(folder / "pictures"), "text": str(folder / "text"), "pixels": str(folder / "pictures")}


def trained(verb, data, run, *options):
    """The model of a run of two steps with some options."""
    assert TRAINERS[verb][0].main([data[verb], *FEW, *DATA[verb], *options, "--run", str(run)]) == 0
    return load(run / "model")


# ---- presets ---------------------------------------------------------------------------------------------------------


def told(name, shape):
    """A preset as a row of the document's table."""
    words = [shape["mixer"]] + [f"{key} {shape[key]}" for key in ("heads", "kernel", "window", "rank") if key in shape]
    return f"| `{name}` | {shape['depth']} | {shape['dim']} | {', '.join(words)} |"


@pytest.mark.parametrize("verb, name", ROWS)
def test_a_preset_is_as_the_document_says(verb, name):
    assert told(name, TRAINERS[verb][1][name][0]) in DOCUMENT.split(f"### `aft-train {verb}`")[1].split("###")[0]


def test_recipes_are_as_the_document_says():
    for name, r in (("CIFAR-10", papers.CIFAR), ("Enwik8", papers.ENWIK8), ("ImageNet", papers.DEIT)):
        assert (f"| {name} | {r.steps:,} | {r.batch:,} | {r.lr:g} | {r.warmup:,} | {r.schedule} | {r.weight_decay:g} | "
                f"{r.beta2:g} |") in DOCUMENT, name


@pytest.mark.parametrize("verb, name", ROWS)
def test_a_preset_learns_is_exported_and_served(verb, name, data, tmp_path, aft):
    """At its own width and size, in one block."""
    model = trained(verb, data, tmp_path / "run", "--preset", name)
    shape = TRAINERS[verb][1][name][0]
    window_of_0 = shape.get("window") == 0
    assert model.config.mixer.type == ("aft-simple" if window_of_0 else shape["mixer"])
    subprocess.run([aft, "verify", str(tmp_path / "run" / "model")], check=True, stdout=subprocess.DEVNULL)


# ---- ablations -------------------------------------------------------------------------------------------------------

SMALL = {"pictures": ["--dim", "16", "--size", "16", "--patch", "4"], "text": ["--dim", "16", "--context", "32"],
         "pixels": ["--dim", "16", "--size", "4"]}
ABLATIONS = [  # (verb, options, what config.json or the tensors then have)
    ("pictures", ["--no-query-gate"], '"query_gate": false'),
    ("pictures", ["--no-global-sum"], '"global": false'),
    ("pictures", ["--raw-kernel"], "!mixer.conv.gain"),
    ("pictures", ["--one-tap"], "!mixer.conv.gain"),
    ("pictures", ["--kernel-entropy", "0.1"], "mixer.conv.gain"),
    ("pictures", ["--kernel", "3"], '"kernel": [\n   3,\n   3\n  ]'),
    ("pictures", ["--mixer", "aft-full", "--rank", "0"], "mixer.pos_bias"),
    ("pictures", ["--mixer", "aft-full", "--rank", "3"], "mixer.pos_u"),
    ("pictures", ["--mixer", "aft-full", "--pooling", "class-token"], "cls_token"),
    ("pictures", ["--mixer", "fastformer", "--share-value-query"], "!mixer.v.weight"),
    ("pictures", ["--activation", "relu"], '"activation": "relu"'),
    ("pictures", ["--share-layers", "--depth", "2"], '"share_layers": true'),
    ("text", ["--no-query-gate"], '"query_gate": false'),
    ("text", ["--no-global-sum"], '"global": false'),
    ("text", ["--window", "0"], '"aft-simple"'),
    ("text", ["--rank", "0"], "mixer.pos_bias"),
    ("text", ["--mixer", "aft-conv", "--raw-kernel", "--kernel", "32", "--heads", "4"], "!mixer.conv.gain"),
    ("text", ["--mixer", "aft-conv", "--kernel", "32", "--heads", "4", "--no-pos-embed"], "!pos_embed"),
    ("pictures", ["--mixer", "sima", "--no-pos-embed"], "!pos_embed"),
    ("pixels", ["--heads", "4", "--no-query-gate"], '"query_gate": false'),
    ("pixels", ["--mixer", "aft-full", "--rank", "0"], "mixer.pos_bias"),
]


@pytest.mark.parametrize("verb, options, has", ABLATIONS, ids=lambda x: " ".join(x) if isinstance(x, list) else None)
def test_an_ablation_learns_is_exported_and_served(verb, options, has, data, tmp_path, aft):
    model = trained(verb, data, tmp_path / "run", *SMALL[verb], *options)
    names = [name.split("blocks.0.")[-1] for name in model.state_dict()]
    assert has[1:] not in names if has[0] == "!" else has in names or has in to_json(model.config)
    assert check(tmp_path / "run" / "model")[0] < 1e-5
    subprocess.run([aft, "verify", str(tmp_path / "run" / "model")], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("options, wanted", [
    (["--mixer", "attention", "--no-query-gate"],
     "--query-gate is for aft-full, aft-local, aft-simple, aft-conv, not for attention"),
    (["--mixer", "aft-simple", "--rank", "3"], "--rank 3 is for aft-full, aft-local, not for aft-simple"),
    (["--mixer", "aft-full", "--no-global-sum"], "--global-sum is for aft-local, aft-conv, not for aft-full"),
])
def test_what_a_mixer_has_not_is_refused(options, wanted, data, tmp_path, capsys):
    assert text.main([data["text"], *FEW, *options, "--run", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"aft_train.text: {wanted}\n"
