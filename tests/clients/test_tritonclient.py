"""The unmodified tritonclient against the Open Inference Protocol of the real daemon: health, metadata, infer with
files and numbers, JSON and binary, errors."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

np = pytest.importorskip("numpy")
triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed: make deps-clients")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = float(os.environ.get("AFTD_TEST_SLOW", "1"))
CONV, WRITER = "cifar10-aft-conv", "enwik8-aft-local"
CAT = (ROOT / "tests/data/cifar/cat.jpg").read_bytes()
FORMATS = ROOT / "tests/data/images/formats"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    log = tmp_path_factory.mktemp("aftd") / "log"
    program = os.environ.get("AFTD_TEST_DAEMON", str(ROOT / "build" / "aftd"))
    with log.open("wb") as to:
        daemon = subprocess.Popen(
            [program, "--listen-address=127.0.0.1", "--listen-port=0", "--threads=1",
             f"--models-dir={ROOT / 'weights' / 'models'}"],
            stdin=subprocess.DEVNULL, stdout=to, stderr=to, cwd=ROOT,
        )  # fmt: skip
    try:
        until = time.monotonic() + 30 * SLOW
        while (found := re.search(r"listening on http://([\d.]+:\d+)", log.read_text())) is None:
            assert daemon.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        with triton.InferenceServerClient(found[1], network_timeout=60 * SLOW) as made:
            yield made
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30 * SLOW) == 0, log.read_text()
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def infer(client, name, values, datatype, model=CONV, binary=True, outputs=None, **options):
    tensor = triton.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values, binary_data=binary)
    return client.infer(model, [tensor], outputs=outputs, **options)


def files(*contents):
    return np.array(contents, dtype=object)


def pixels(side=32):
    y, x, c = np.mgrid[0:side, 0:side, 0:3]
    return ((x * 7 + y * 3 + c * 50) % 256).astype(np.float32)[None]


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(CONV) and client.is_model_ready(CONV, "1") and client.is_model_ready(WRITER)
    assert not client.is_model_ready("none") and not client.is_model_ready(CONV, "2")
    assert client.get_server_metadata()["name"] == "aftd"
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    said = client.get_model_metadata(CONV)
    assert said["name"] == CONV and said["versions"] == ["1"]
    assert [(t["name"], t["datatype"], t["shape"]) for t in said["inputs"]] == [
        ("image", "BYTES", [-1]), ("pixels", "FP32", [-1, 32, 32, 3])]  # fmt: skip
    assert [(t["name"], t["datatype"], t["shape"]) for t in said["outputs"]] == [
        ("logits", "FP32", [-1, 10]), ("probabilities", "FP32", [-1, 10])]  # fmt: skip


def test_files_of_every_kind(client):
    png, webp = (FORMATS / "rgb-8.png").read_bytes(), (FORMATS / "lossless.webp").read_bytes()
    answer = infer(client, "image", files(CAT, png, webp), "BYTES", request_id="me", model_version="1")
    assert answer.get_response()["id"] == "me"
    logits, probabilities = answer.as_numpy("logits"), answer.as_numpy("probabilities")
    assert logits.shape == probabilities.shape == (3, 10) and logits.dtype == np.float32
    assert probabilities[0].argmax() == 3  # cat
    assert (logits[1] == logits[2]).all()  # the same pixels
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.log(probabilities), logits - np.log(np.exp(logits).sum(1, keepdims=True)), atol=1e-5)
    column = infer(client, "image", files(CAT).reshape(1, 1), "BYTES")
    assert (column.as_numpy("logits") == logits[:1]).all()


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_numbers(client, binary_in, binary_out):
    outputs = [triton.InferRequestedOutput("logits", binary_data=binary_out)]
    values = np.repeat(pixels(), 2, axis=0)
    last = infer(client, "pixels", values, "FP32", binary=binary_in, outputs=outputs)
    first = np.ascontiguousarray(np.clip(values.transpose(0, 3, 1, 2) + 0.2, 0, 255))
    other = infer(client, "pixels", first, "FP32", binary=binary_in, outputs=outputs)
    whole = infer(client, "pixels", values.astype(np.uint8), "UINT8", binary=binary_in, outputs=outputs)
    assert last.as_numpy("probabilities") is None
    for answer in (other, whole):
        np.testing.assert_allclose(answer.as_numpy("logits"), last.as_numpy("logits"), rtol=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client, binary):
    output = triton.InferRequestedOutput("probabilities", binary_data=binary, class_count=2)
    answer = infer(client, "image", files(CAT, CAT), "BYTES", outputs=[output]).as_numpy("probabilities")
    assert answer.shape == (2, 2)
    text = answer[0][0].decode() if isinstance(answer[0][0], bytes) else answer[0][0]
    value, index, label = text.split(":")
    assert float(value) > 0.3 and (index, label) == ("3", "cat")


def test_texts(client):
    parameters = {"max_tokens": 30, "seed": 7, "temperature": 0.8}
    both = infer(client, "prompt", files(b"The history of ", b"In "), "BYTES", WRITER, parameters=parameters)
    alone = infer(client, "prompt", files(b"The history of "), "BYTES", WRITER, False, parameters=parameters)
    assert both.as_numpy("text").shape == (2,)
    assert both.as_numpy("text")[0] == alone.as_numpy("text")[0] and len(alone.as_numpy("text")[0]) == 30
    assert list(both.as_numpy("finish_reason")) == [b"length", b"length"]


def test_errors(client):
    def refused(status, says, *arguments, **options):
        with pytest.raises(triton.InferenceServerException, match=says) as caught:
            infer(client, *arguments, **options)
        assert caught.value.status() == str(status)

    refused(404, "none", "image", files(CAT), "BYTES", model="none")
    refused(415, r"image\[1\]", "image", files(CAT, b"text"), "BYTES")
    refused(422, r"image\[0\]", "image", files(CAT[:-100]), "BYTES")
    refused(400, "expected FP32 or UINT8", "pixels", pixels(8), "FP32")
    refused(400, "0 to 255", "pixels", pixels() - 1, "FP32")
    refused(400, "no parameter", "image", files(CAT), "BYTES", parameters={"seed": 1})
    refused(415, "compressed bodies are not read", "image", files(CAT), "BYTES", request_compression_algorithm="gzip")
