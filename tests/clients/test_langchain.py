"""LangChain's class for OpenAI's completions, as it is, against the daemon."""

import pytest

openai = pytest.importorskip("openai", reason="the openai package is not installed: make deps-clients")
langchain = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed: make deps-clients")

PROMPTS = ["The history of ", "In "]


@pytest.fixture(scope="module")
def writer(daemon):
    return langchain.OpenAI(
        base_url=daemon.url + "/v1", api_key="none", model="enwik8-aft-local", max_tokens=30, temperature=0.7, seed=5
    )


def test_texts_whole_in_batches_and_in_pieces(writer):
    whole = [writer.invoke(prompt) for prompt in PROMPTS]
    assert writer.batch(PROMPTS) == whole == ["".join(writer.stream(prompt)) for prompt in PROMPTS]
    both = writer.generate(PROMPTS)
    assert [text[0].text for text in both.generations] == whole
    assert both.llm_output["token_usage"]["completion_tokens"] == 60


def test_a_stop_string_ends_a_text(writer):
    text = writer.invoke(PROMPTS[0])
    assert writer.invoke(PROMPTS[0], stop=[text[10:13]]) == text[: text.index(text[10:13])]


def test_an_unknown_model_is_told(writer):
    with pytest.raises(openai.NotFoundError, match="gpt-3"):
        writer.model_copy(update={"model_name": "gpt-3"}).invoke("a")
