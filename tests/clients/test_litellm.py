"""LiteLLM, as it is, against the daemon's interface of OpenAI's completions."""

import os

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch a list of prices
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of its own types
litellm = pytest.importorskip("litellm", reason="litellm is not installed: make deps-clients")


def ask(daemon, model="enwik8-aft-local", **options):
    return litellm.text_completion(
        model=f"text-completion-openai/{model}", api_base=daemon.url + "/v1", api_key="none", num_retries=0,
        prompt="The history of ", **{"max_tokens": 30, "temperature": 0.7, "seed": 5, **options},
    )  # fmt: skip


def test_a_text_whole_and_in_pieces(daemon):
    whole = ask(daemon)
    assert len(whole.choices[0].text) == 30 and whole.choices[0].finish_reason == "length"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (15, 30)
    assert "".join(chunk.choices[0].text or "" for chunk in ask(daemon, stream=True)) == whole.choices[0].text


def test_errors_have_their_class(daemon):
    with pytest.raises(litellm.NotFoundError, match="gpt-3"):
        ask(daemon, model="gpt-3")
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        ask(daemon, temperature=-1)
