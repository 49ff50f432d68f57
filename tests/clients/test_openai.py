"""OpenAI's own client for Python, as it is, against the daemon."""

import json
import re
import threading
import time
import urllib.request

import pytest

openai = pytest.importorskip("openai", reason="the openai package is not installed: make deps-clients")

MODEL = "enwik8-aft-local"
PROMPT = "The history of "


@pytest.fixture(scope="module")
def client(daemon):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", timeout=60)


def test_models_are_listed_and_found(client):
    assert MODEL in [model.id for model in client.models.list()]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "aftd")
    assert model.created > 1_700_000_000
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-3")


@pytest.mark.parametrize("texts", [PROMPT, [PROMPT, "In "], list(PROMPT.encode()), [[73, 110, 32], [255, 0]]])
def test_texts_are_embedded_in_both_encodings(client, texts):
    count = len(texts) if isinstance(texts, list) and not isinstance(texts[0], int) else 1
    usual = client.embeddings.create(model=MODEL, input=texts)  # the client asks for base64, and takes it apart
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float", dimensions=192, user="me")
    assert usual.object == "list" and usual.model == MODEL
    assert [(one.object, one.index) for one in usual.data] == [("embedding", i) for i in range(count)]
    for one, other in zip(usual.data, plain.data, strict=True):
        assert len(one.embedding) == len(other.embedding) == 192
        assert one.embedding == pytest.approx(other.embedding, rel=1e-7)
    total = len(texts) if count == 1 else sum(map(len, texts))
    assert usual.usage == plain.usage and (usual.usage.prompt_tokens, usual.usage.total_tokens) == (total, total)


def test_a_text_has_its_embedding_alone_and_among_others(client):
    alone = client.embeddings.create(model=MODEL, input="In ").data[0].embedding
    several = client.embeddings.create(model=MODEL, input=[PROMPT, "In ", "x" * 500]).data
    assert several[1].embedding == alone != several[0].embedding


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"model": "text-embedding-3-small"}, openai.NotFoundError, "model"),
        ({"model": "cifar10-aft-conv"}, openai.BadRequestError, "model"),
        ({"input": "x" * 513}, openai.BadRequestError, "input"),
        ({"input": ["a", ""]}, openai.BadRequestError, "input[1]"),
        ({"dimensions": 256}, openai.BadRequestError, "dimensions"),
    ],
)
def test_embeddings_that_cannot_be_are_refused(client, asked, error, param):
    with pytest.raises(error) as raised:
        client.embeddings.create(**({"model": MODEL, "input": "a"} | asked))
    assert raised.value.body["message"] and raised.value.param == param


def test_a_prompt_is_completed(client):
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, seed=1, temperature=0.7, stop=["zzz"])
    assert whole.id.startswith("cmpl-") and whole.object == "text_completion" and whole.model == MODEL
    assert len(whole.choices) == 1 and whole.choices[0].index == 0 and whole.choices[0].logprobs is None
    assert whole.choices[0].finish_reason == "length"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (15, 20, 35)
    again = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, seed=1, temperature=0.7, user="me")
    assert again.choices[0].text == whole.choices[0].text and again.id != whole.id
    assert again.system_fingerprint == whole.system_fingerprint is not None


def test_several_prompts_and_texts_come_in_order(client):
    both = client.completions.create(model=MODEL, prompt=[PROMPT, "In "], n=2, best_of=2, max_tokens=9, seed=3)
    bytewise = [list(PROMPT.encode()), list(b"In ")]
    ids = client.completions.create(model=MODEL, prompt=bytewise, n=2, max_tokens=9, seed=3)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in both.choices] == [choice.text for choice in ids.choices]
    alone = client.completions.create(model=MODEL, prompt=list(b"In "), max_tokens=9, seed=3)
    assert alone.choices[0].text == both.choices[2].text


def test_logprobs_are_told(client):
    whole = client.completions.create(model=MODEL, prompt="Caf\u00e9 ", max_tokens=4, echo=True, logprobs=3, seed=1)
    told = whole.choices[0].logprobs
    assert told.tokens[:6] == ["C", "a", "f", "bytes:\\xc3", "bytes:\\xa9", " "]
    assert told.text_offset[:6] == [0, 1, 2, 3, 3, 4]
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset) == 10
    assert told.token_logprobs[0] is None and all(logprob <= 0 for logprob in told.token_logprobs[1:])
    for token, logprob, top in zip(told.tokens[1:], told.token_logprobs[1:], told.top_logprobs[1:], strict=True):
        assert top[token] == logprob and 3 <= len(top) <= 4


def test_penalties_and_a_bias_change_what_is_drawn(client):
    asked = dict(model=MODEL, prompt=PROMPT, max_tokens=200, seed=1)
    plain = client.completions.create(**asked).choices[0].text
    for fields in {"presence_penalty": 2.0}, {"frequency_penalty": -0.5}, {"extra_body": {"repetition_penalty": 1.3}}:
        assert client.completions.create(**asked, **fields).choices[0].text != plain, fields
    assert "e" in plain
    assert "e" not in client.completions.create(**asked, logit_bias={"101": -100}).choices[0].text
    letters = client.completions.create(**asked, extra_body={"allowed_bytes": "ab ", "utf8": True}).choices[0].text
    assert len(letters) == 200 and set(letters) <= set("ab ")


def test_the_best_of_several_texts_is_returned(client):
    asked = dict(model=MODEL, prompt=PROMPT, max_tokens=20, seed=3, logprobs=0)
    texts = client.completions.create(**asked, n=5).choices
    best = client.completions.create(**asked, best_of=5)
    likeliest = max(texts, key=lambda choice: sum(choice.logprobs.token_logprobs))
    assert [choice.text for choice in best.choices] == [likeliest.text] and best.choices[0].index == 0
    assert best.usage.completion_tokens == 100


@pytest.mark.parametrize("size", [500, 5000])
def test_a_prompt_beyond_the_context_does_not_end_the_text(client, size):
    prompt = ("The history of Rome is long. " * 200)[:size]
    asked = dict(model=MODEL, prompt=prompt, max_tokens=50, seed=1)
    whole = client.completions.create(**asked)
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (size, 50)
    assert (whole.usage.prompt_tokens_dropped > 0) == (size > 512)
    assert whole.choices[0].finish_reason == "length" and len(whole.choices[0].text) > 20
    cut = client.completions.create(**asked, extra_body={"context_overflow": "stop"})
    assert cut.usage.completion_tokens < 50


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_the_same_text(client, n):
    asked = dict(model=MODEL, prompt=PROMPT, max_tokens=30, seed=5, n=n, temperature=0.9)
    whole = client.completions.create(**asked)
    texts, finishes, usage = [""] * n, [None] * n, None
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "text_completion" and chunk.model == MODEL and chunk.id.startswith("cmpl-")
        if not chunk.choices:
            assert usage is None
            usage = chunk.usage
            continue
        assert chunk.usage is None and usage is None
        texts[chunk.choices[0].index] += chunk.choices[0].text
        finishes[chunk.choices[0].index] = chunk.choices[0].finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert finishes == ["length"] * n
    assert usage == whole.usage


def test_a_stream_may_be_left(client):
    with client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=5000, stream=True) as stream:
        assert next(iter(stream)).choices[0].text


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"model": "gpt-3"}, openai.NotFoundError, None),
        ({"max_tokens": -1}, openai.BadRequestError, "max_tokens"),
        ({"n": 2, "best_of": 1}, openai.BadRequestError, "best_of"),
        ({"suffix": "x"}, openai.BadRequestError, "suffix"),
        ({"presence_penalty": 2.5}, openai.BadRequestError, "presence_penalty"),
        ({"logit_bias": {"300": 1}}, openai.BadRequestError, "logit_bias"),
        ({"prompt": [300]}, openai.BadRequestError, "prompt"),
    ],
)
def test_errors_have_their_class(client, asked, error, param):
    with pytest.raises(error) as raised:
        client.completions.create(**({"model": MODEL, "prompt": "a"} | asked))
    assert raised.value.body["message"] and raised.value.type.endswith("_error") and raised.value.code
    assert param is None or raised.value.param == param


def test_a_model_without_a_chat_template_has_no_conversations(client):
    with pytest.raises(openai.NotFoundError, match="chat_template.*POST the text to /v1/completions"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])


def test_a_full_queue_is_tried_again(start_daemon):
    """One stream runs and one request waits; the next is refused with 503 and Retry-After, until there is room."""
    daemon = start_daemon("--streams-max=1", "--queue-jobs-max=1")
    once = openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", max_retries=0, timeout=120)
    often = once.with_options(max_retries=60)
    ask = dict(model=MODEL, prompt="a", max_tokens=1)
    endless = {**ask, "max_tokens": 65536, "context_overflow": "shift", "stream": True, "timeout_ms": 120000}
    running = urllib.request.urlopen(daemon.url + "/generate", json.dumps(endless).encode(), timeout=120)
    waiting = threading.Thread(target=lambda: once.completions.create(**ask))
    try:
        running.readline()
        waiting.start()
        await_queued(daemon)
        with pytest.raises(openai.InternalServerError) as refused:
            once.completions.create(**ask)
        assert refused.value.status_code == 503 and refused.value.code == "queue_full"
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        left = threading.Timer(0.5, running.close)
        left.start()
        assert often.completions.create(**ask).choices[0].finish_reason == "length"
        left.join()
    finally:
        running.close()
        waiting.join()


def await_queued(daemon):
    end = time.monotonic() + 120
    while not re.search(r'^aftd_queue_depth\{model="enwik8-aft-local"\} 1$', read(daemon.url + "/metrics"), re.M):
        assert time.monotonic() < end, "nothing waits in the queue"
        time.sleep(0.01)


def read(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()
