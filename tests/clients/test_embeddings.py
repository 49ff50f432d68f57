"""POST /v1/embeddings against the reference in float64, by OpenAI's own client: golden models of many mixers."""

import base64
import pathlib
import struct
import sys
import zlib

import pytest

openai = pytest.importorskip("openai", reason="the openai package is not installed: make deps-clients")
np = pytest.importorskip("numpy", reason="numpy is not installed: make deps-clients")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

from oracle import Model, read_safetensors  # noqa: E402

TEXTS = ["lm-local-8", "lm-full", "lm-simple", "lm-attention", "lm-conv-heads4-k5"]
CLASSIFIED = ["text-attention", "text-fastformer", "text-simple-attention"]
PICTURES = ["conv-heads8-k5", "image-aft-full-class-token", "image-aft-local", "image-sima", "conv-k3x7-oblong"]


@pytest.fixture(scope="module")
def client(start_daemon, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name in TEXTS + CLASSIFIED + PICTURES:
        (models / name).symlink_to(GOLDEN / name)
    daemon = start_daemon(f"--models-dir={models}", "--precision=f32")
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", timeout=60)


def inputs_of(name):
    cases = read_safetensors(GOLDEN / name / "cases.safetensors")
    return [cases[f"input.{k}"] for k in range(sum(key.startswith("input.") for key in cases))]


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def assert_all_close(answer, expected, tokens):
    assert [one.index for one in answer.data] == list(range(len(expected)))
    for one, want in zip(answer.data, expected, strict=True):
        np.testing.assert_allclose(one.embedding, want, rtol=1e-5, atol=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens


@pytest.mark.parametrize("name", TEXTS + CLASSIFIED)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_texts_are_what_the_reference_says(client, name, encoding):
    model = Model(str(GOLDEN / name))
    embedding = model.lm_embedding if name in TEXTS else model.text_embedding
    texts = [text for text in inputs_of(name) if 0 < len(text) <= model.cfg["input"]["context"]]
    assert texts
    # The client itself takes base64 apart only if it has asked for that, which it does by default.
    asked = dict(encoding_format="float") if encoding == "float" else {}
    answer = client.embeddings.create(model=name, input=[text.tolist() for text in texts], **asked)
    assert_all_close(answer, [embedding(text) for text in texts], sum(map(len, texts)))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_what_the_reference_says(client, name):
    model = Model(str(GOLDEN / name))
    height, width = model.cfg["input"]["size"]
    pictures = [picture for picture in inputs_of(name) if picture.shape[:2] == (height, width)]
    assert pictures
    images = [base64.b64encode(png(picture)).decode() for picture in pictures]
    answer = client.embeddings.create(model=name, input=None, extra_body={"images": images})
    patches = height // model.cfg["input"]["patch"][0] * (width // model.cfg["input"]["patch"][1])
    assert_all_close(answer, [model.image_embedding(picture) for picture in pictures], patches * len(pictures))
