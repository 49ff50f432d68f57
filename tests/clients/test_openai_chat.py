"""OpenAI's own client for Python has conversations with a model that has a chat_template."""

import json
import urllib.request

import pytest

openai = pytest.importorskip("openai", reason="the openai package is not installed: make deps-clients")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
PROMPT = "Be brief.\n\nQ: Who?\nA: "
ASKED = dict(model="chat", messages=MESSAGES, seed=1, max_tokens=30, temperature=0.7)
LETTERS = {"allowed_bytes": "abc d", "utf8": True}  # what the client does not know goes into extra_body


@pytest.fixture(scope="module")
def client(chat_daemon):
    return openai.OpenAI(base_url=chat_daemon.url + "/v1", api_key="none", max_retries=0, timeout=60)


def test_a_conversation_is_continued_as_its_text_is(client, chat_daemon):
    whole = client.chat.completions.create(**ASKED, extra_body=LETTERS)
    assert whole.object == "chat.completion" and whole.id.startswith("chatcmpl-") and whole.model == "chat"
    message = whole.choices[0].message
    assert (message.role, message.refusal, message.tool_calls) == ("assistant", None, None)
    assert whole.choices[0].finish_reason == "length" and whole.choices[0].logprobs is None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(PROMPT), 30)
    said = {"model": "chat", "prompt": PROMPT, "seed": 1, "max_tokens": 30, "temperature": 0.7, "stop": "\nQ:"}
    body = json.dumps(said | LETTERS).encode()
    with urllib.request.urlopen(chat_daemon.url + "/generate", body, timeout=60) as answer:
        assert message.content == json.load(answer)["text"] != ""


def test_an_answer_can_be_sent_back(client):
    answer = client.chat.completions.create(**ASKED, extra_body=LETTERS).choices[0].message
    for sent_back in answer, answer.model_dump(), {"role": "assistant", "content": answer.content}:
        messages = [*MESSAGES, sent_back, {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
        more = client.chat.completions.create(**ASKED | {"messages": messages})
        assert more.usage.prompt_tokens == len(PROMPT) + len(answer.content) + len("\nQ: Why?\nA: ")


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_the_same_text(client, n):
    asked = ASKED | dict(n=n, extra_body=LETTERS)
    whole = client.chat.completions.create(**asked)
    texts, roles, finishes, usage = [""] * n, [None] * n, [None] * n, None
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "chat.completion.chunk" and chunk.model == "chat"
        if not chunk.choices:
            usage = chunk.usage
            continue
        choice = chunk.choices[0]
        roles[choice.index] = choice.delta.role or roles[choice.index]
        texts[choice.index] += choice.delta.content or ""
        finishes[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert roles == ["assistant"] * n and finishes == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_the_clients_own_gathering_of_a_stream_works(client):
    """It takes only answers that end by themselves."""
    asked = ASKED | dict(stop="d", max_tokens=1000, extra_body=LETTERS)
    with client.chat.completions.stream(**asked) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**asked)
    assert final.choices[0].message.content == "".join(deltas) == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


def test_logprobs_are_told(client):
    told = client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=3, extra_body=LETTERS).choices[0]
    assert len(told.logprobs.content) == 30 and told.logprobs.refusal is None
    assert bytes(byte for one in told.logprobs.content for byte in one.bytes).decode() == told.message.content
    for one in told.logprobs.content:
        assert one.token == chr(one.bytes[0]) and one.logprob <= 0 and len(one.top_logprobs) == 3
        assert one.logprob <= max(top.logprob for top in one.top_logprobs)


def test_a_stream_may_be_left(client):
    with client.chat.completions.create(**ASKED | {"max_tokens": 5000}, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "model"),
        ({"model": "plain"}, openai.NotFoundError, "model"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, openai.BadRequestError, "messages[0].role"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools"),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format"),
        ({"max_completion_tokens": 0, "max_tokens": None}, openai.BadRequestError, "max_completion_tokens"),
    ],
)
def test_errors_have_their_class(client, asked, error, param):
    with pytest.raises(error) as raised:
        client.chat.completions.create(**ASKED | asked)
    assert raised.value.body["message"] and raised.value.type.endswith("_error") and raised.value.param == param
