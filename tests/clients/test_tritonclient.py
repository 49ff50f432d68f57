"""The unmodified tritonclient against the Open Inference Protocol of the real daemon: health, metadata, configuration,
statistics, the repository, infer with files and numbers, JSON and binary, errors."""

import time

import pytest
from conftest import ROOT, SLOW

np = pytest.importorskip("numpy")
triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed: make deps-clients")

CONV, WRITER = "cifar10-aft-conv", "enwik8-aft-local"
CAT = (ROOT / "tests/data/cifar/cat.jpg").read_bytes()
FORMATS = ROOT / "tests/data/images/formats"


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon("--admin-address=127.0.0.1", "--admin-port=0")


@pytest.fixture(scope="module")
def client(daemon):
    with triton.InferenceServerClient(f"127.0.0.1:{daemon.port}", network_timeout=60 * SLOW) as made:
        yield made


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


def test_options_of_every_request(client):
    asked = dict(parameters={"max_tokens": 5, "seed": 1})
    plain = infer(client, "prompt", files(b"In "), "BYTES", WRITER, **asked).as_numpy("text")[0]
    for options in (
        dict(priority=1),
        dict(priority=7, timeout=30_000_000),
        dict(sequence_id=5, sequence_start=True),
        dict(sequence_id="a", sequence_end=True, request_id="x"),
    ):
        answer = infer(client, "prompt", files(b"In "), "BYTES", WRITER, **asked, **options)
        assert answer.as_numpy("text")[0] == plain, options
    pictures = infer(client, "image", files(CAT), "BYTES", priority=2, timeout=30_000_000, sequence_id=1)
    assert pictures.as_numpy("probabilities").argmax() == 3


def test_the_configuration(client):
    said = client.get_model_config(CONV)
    assert said == client.get_model_config(CONV, "1")
    assert (said["name"], said["max_batch_size"]) == (CONV, 64)
    batched = [[-1, *tensor["dims"]] for tensor in said["input"]]
    assert batched == [tensor["shape"] for tensor in client.get_model_metadata(CONV)["inputs"]]
    with pytest.raises(triton.InferenceServerException, match="none"):
        client.get_model_config("none")


def test_the_statistics(client):
    def of(name):
        return client.get_inference_statistics(name)["model_stats"][0]

    before = of(CONV)
    infer(client, "image", files(CAT, CAT), "BYTES")
    end = time.monotonic() + 120
    while of(CONV)["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"]:
        assert time.monotonic() < end  # a request is counted once its answer is sent
    after = of(CONV)
    assert after["inference_count"] == before["inference_count"] + 2
    assert after["inference_stats"]["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]
    everything = client.get_inference_statistics()["model_stats"]
    assert {CONV, WRITER} <= {stats["name"] for stats in everything}
    assert after == next(stats for stats in everything if stats["name"] == CONV)


def test_the_repository(client, daemon):
    def states():
        return {model["name"]: model["state"] for model in client.get_model_repository_index()}

    assert states()[CONV] == "READY"
    with triton.InferenceServerClient(f"127.0.0.1:{daemon.admin_port}", network_timeout=60 * SLOW) as admin:
        admin.unload_model(CONV)
        assert states()[CONV] == "UNAVAILABLE" and not client.is_model_ready(CONV)
        with pytest.raises(triton.InferenceServerException, match="not loaded"):
            admin.unload_model(CONV)
        with pytest.raises(triton.InferenceServerException, match="config"):
            admin.load_model(CONV, config="{}")
        admin.load_model(CONV)
        with pytest.raises(triton.InferenceServerException, match="there is no model"):
            admin.load_model("none")
    assert states()[CONV] == "READY" and client.is_model_ready(CONV)


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
    refused(400, "multiply them by 255", "pixels", (pixels() / 255).astype(np.float32), "FP32")
    refused(400, "no parameter", "image", files(CAT), "BYTES", parameters={"seed": 1})
    refused(415, "compressed bodies are not read", "image", files(CAT), "BYTES", request_compression_algorithm="gzip")
