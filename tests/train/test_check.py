import shutil

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from conftest import ROOT
from tiny import tiny_model

from aft_train import ModelError, export
from aft_train.check import check, difference, main, read_cases
from aft_train.export import sample_inputs

DIRS = {p.parent.name: p.parent for p in sorted((ROOT / "tests" / "data").glob("*/*/cases.safetensors"))}
DIRS |= {p.parent.name: p.parent for p in sorted((ROOT / "weights" / "models").glob("*/cases.safetensors"))}


@pytest.mark.parametrize("name", DIRS)
def test_models_of_the_repository_agree(name):
    assert check(DIRS[name])[0] < 1e-5


@pytest.fixture
def model_dir(tmp_path):
    model = tiny_model()
    export(model, tmp_path / "m", sample_inputs(model.config))
    return tmp_path / "m"


def test_it_prints_what_aft_verify_prints(model_dir, capsys):
    assert main([str(model_dir)]) == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("ok      ") and line.endswith(f"{model_dir} (4 inputs)")
    assert line.index(str(model_dir)) == 18
    assert last == "1 passed, 0 failed"


def change_cases(model_dir, change):
    tensors = safetensors.numpy.load_file(model_dir / "cases.safetensors")
    change(tensors)
    safetensors.numpy.save_file(tensors, model_dir / "cases.safetensors")


def test_logits_may_be_of_half_precision(model_dir):
    path = model_dir / "cases.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors = {name: t if t.dtype == torch.uint8 else t.bfloat16() for name, t in tensors.items()}
    safetensors.torch.save_file(tensors, path)
    assert 1e-5 < check(model_dir)[0] < 1e-2


def test_other_logits_fail(model_dir, capsys):
    change_cases(model_dir, lambda t: t["logits.2"].__setitem__((1, 7), t["logits.2"][1, 7] + 0.1))
    assert main([str(model_dir), str(model_dir), "--tolerance", "1e-5"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 2 failed"
    assert main([str(model_dir), "--tolerance", "0.1"]) == 0


def test_logits_that_are_no_numbers_fail(model_dir, capsys):
    change_cases(model_dir, lambda t: t["logits.0"].__setitem__((0, 0), np.nan))
    assert main([str(model_dir), "--tolerance", "1"]) == 1
    assert capsys.readouterr().out.startswith("FAILED  nan ")


@pytest.mark.parametrize("change,message", [
    (lambda t: t.pop("logits.1"), "logits.1 is missing"),
    (lambda t: t.update({"input.9": t["input.0"], "logits.9": t["logits.0"]}), "input.4 is missing"),
    (lambda t: t.clear(), "input.0 is missing"),
    (lambda t: t.update({"input.0": np.zeros(13, np.uint8)}), "input.0 has shape [13], expected [T] of 1 to 12 bytes"),
    (lambda t: t.update({"logits.0": np.zeros(256, np.float32)}), "logits.0 has shape [256], expected [1, 256]"),
])
def test_cases_that_are_none_are_named(change, message, model_dir, capsys):
    change_cases(model_dir, change)
    with pytest.raises(ModelError) as e:
        check(model_dir)
    assert message in str(e.value)
    assert main([str(model_dir)]) == 1
    assert message in capsys.readouterr().out.splitlines()[0]


def test_directories_that_are_none_fail_and_the_others_go_on(model_dir, tmp_path, capsys):
    shutil.copytree(model_dir, tmp_path / "bare")
    (tmp_path / "bare" / "cases.safetensors").unlink()
    assert main([str(tmp_path / "nothing"), str(tmp_path / "bare"), str(model_dir)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "nothing/config.json: No such file" in lines[0] and "bare/cases.safetensors" in lines[1]
    assert lines[2].startswith("ok ") and lines[3] == "1 passed, 2 failed"


@pytest.mark.parametrize("args", [[], *(["m", "--tolerance", wrong] for wrong in ("x", "2", "-1", "nan"))])
def test_wrong_usage_exits_with_2(args):
    with pytest.raises(SystemExit) as e:
        main(args)
    assert e.value.code == 2


def test_difference_is_relative_to_the_largest_logit():
    assert difference(np.array([100.0, 1.0]), np.array([101.0, 1.0])) == pytest.approx(1 / 101)
    assert difference(np.array([0.1]), np.array([0.3])) == pytest.approx(0.2)  # below 1 it is absolute


def test_all_cases_are_read_in_order(model_dir):
    assert [x.shape for x, _ in read_cases(model_dir)] == [(1,), (2,), (7,), (12,)]
