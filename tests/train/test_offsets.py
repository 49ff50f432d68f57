"""Attention by offset: the mean over pictures and over pairs of patches, one by one here, and the sheet of it."""
import numpy as np
import pytest
import torch
from PIL import Image
from test_pictures import FILES, write_folder
from tiny import tiny_model

from aft_train import export
from aft_train.export import model_input
from aft_train.offsets import by_offset, main, mean_attention
from aft_train.pictures import read_pictures


def model_of(**more):
    return tiny_model("image-classification", "attention", **more)


@pytest.mark.parametrize("more", [{}, {"pooling": "class-token"}, {"share_layers": True}])
def test_attention_is_the_mean_over_pictures(more, tmp_path):
    model = model_of(**more)
    pictures = read_pictures(write_folder(tmp_path, FILES))
    got = mean_attention(model, pictures, 0)
    assert got.shape == (2, 2, model.config.tokens, model.config.tokens)
    first, seen = model.blocks[0], []
    hook = first.norm1.register_forward_hook(lambda module, x, y: seen.append(y[0]))  # what the mixer sees
    want = 0
    for i in range(len(pictures)):
        seen.clear()
        with torch.no_grad():
            model(model_input(model, pictures.prepared(i, model.config)[None]))
            q, k = first.mixer.q(seen[0])[:, 4:], first.mixer.k(seen[0])[:, 4:]  # the second head of two
            want = want + torch.softmax(q @ k.T / 2, dim=1) / len(pictures)
    hook.remove()
    assert got[0, 1].numpy() == pytest.approx(want.numpy(), rel=1e-5)
    assert got.sum(-1).numpy() == pytest.approx(1.0)


@pytest.mark.parametrize("lead", [0, 1])
def test_offsets_are_the_mean_over_pairs(lead):
    height, width = 2, 3
    attention = torch.from_numpy(np.random.default_rng(0).random((5, lead + 6, lead + 6)))
    got = by_offset(attention, (height, width))
    assert got.shape == (5, 3, 5)
    for dy in range(-1, 2):
        for dx in range(-2, 3):
            pairs = [attention[:, lead + y * width + x, lead + (y + dy) * width + x + dx]
                     for y in range(height) for x in range(width)
                     if 0 <= y + dy < height and 0 <= x + dx < width]
            assert got[:, 1 + dy, 2 + dx].numpy() == pytest.approx(torch.stack(pairs).mean(0).numpy())


def test_a_sheet_has_a_row_for_each_layer(tmp_path, capsys):
    export(model_of(heads=4), tmp_path / "m", [np.zeros((8, 8, 3), np.uint8)])
    write_folder(tmp_path / "p", FILES)
    assert main([str(tmp_path / "m"), str(tmp_path / "p"), "-o", str(tmp_path / "o.png"), "--limit", "2"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/o.png: 2 layers from above, 4 heads each\n"
    with Image.open(tmp_path / "o.png") as image:
        assert image.size == (480, 240)
        assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_what_has_no_attention_is_refused(tmp_path, capsys):
    export(tiny_model("image-classification", "sima"), tmp_path / "m", [np.zeros((8, 8, 3), np.uint8)])
    write_folder(tmp_path / "p", FILES)
    assert main([str(tmp_path / "m"), str(tmp_path / "p"), "-o", str(tmp_path / "o.png")]) == 1
    assert "is for image-classification by sima, expected image-classification by attention" in capsys.readouterr().err
    assert not (tmp_path / "o.png").exists()
    export(model_of(), tmp_path / "a", [np.zeros((8, 8, 3), np.uint8)])
    assert main([str(tmp_path / "a"), str(tmp_path / "none"), "-o", str(tmp_path / "o.png")]) == 1
    assert "no such folder" in capsys.readouterr().err
