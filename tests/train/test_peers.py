"""What make bench-peers measures beside aftd computes what the twins compute."""
import sys
from pathlib import Path

import pytest
import torch
from tiny import tiny_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from peer_models import Pictures, Recurrent, picture_graph

KERNELS = [dict(heads=8, kernel=(3, 3)), dict(heads=2, kernel=(3, 5)), dict(heads=1, kernel=(9, 9))]
IDS = ["a-head-a-channel", "oblong", "wider-than-the-grid"]


def picture_twin(**mixer):
    """A tiny classifier whose keys and biases leave float32 its digits in a sum with exp(w) - 1."""
    model = tiny_model("image-classification", "aft-conv", reparameterised=False, **mixer)
    with torch.no_grad():
        for block in model.blocks:
            block.mixer.k.weight *= 0.2
            block.mixer.conv.weight *= 0.5
    return model


def error_of(got, want):
    return float((got - want).abs().max() / max(1.0, want.abs().max()))


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("mixer", KERNELS, ids=IDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_depthwise_form_agrees(mixer, batch):
    twin = picture_twin(**mixer)
    pictures = torch.randn(batch, 3, *twin.config.size)
    assert error_of(Pictures(twin)(pictures), twin(pictures)) < 2e-5


@pytest.mark.parametrize("mixer", KERNELS, ids=IDS)
def test_the_onnx_graph_agrees(mixer):
    onnx = pytest.importorskip("onnx", reason="onnx is missing: make deps-peers")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is missing: make deps-peers")
    twin = picture_twin(**mixer)
    graph = picture_graph(Pictures(twin))
    onnx.checker.check_model(graph, full_check=True)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        pictures = torch.randn(batch, 3, *twin.config.size)
        got = torch.from_numpy(session.run(["logits"], {"pictures": pictures.numpy()})[0])
        assert error_of(got, twin(pictures)) < 2e-5


@pytest.mark.parametrize("factorised", [True, False])
@pytest.mark.parametrize("streams", [1, 3])
def test_the_recurrent_step_agrees(streams, factorised):
    twin = tiny_model(window=4, factorised=factorised)  # bytes leave the window, and its ring is used anew
    step, text = Recurrent(twin), torch.randint(256, (streams, twin.config.context))
    state = step.state(streams)
    rows = []
    for t in range(twin.config.context):
        at = torch.tensor([t])
        rows.append(step(text[:, t], at, at % step.window, state))
    assert error_of(torch.stack(rows, dim=1), twin(text)) < 2e-5


def test_other_models_are_refused():
    for mixer in ("aft-full", "aft-conv"):
        with pytest.raises(ValueError, match="expected aft-local"):
            Recurrent(tiny_model("text-generation", mixer))
    with pytest.raises(ValueError, match="expected aft-conv"):
        Pictures(tiny_model("image-classification", "attention"))
