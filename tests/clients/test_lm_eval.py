"""lm-eval's local-completions, as it is, against the daemon: a small task of its multiple_choice kind, by token ids and
by texts, with batches; its figures must be those that /score gives."""

import json
import math
import re
import urllib.request

import pytest
from conftest import ROOT

lm_eval = pytest.importorskip("lm_eval", reason="the lm-eval package is not installed: make deps-clients")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make deps-clients")

TOKENIZER = ROOT / "weights" / "tokenizer"
DOCS = [
    {"question": "The capital of France is [[", "choices": ["Paris", "qzxv"], "label": 0},
    {"question": "See also: [http://www", "choices": [".", "Zx"], "label": 0},
    {"question": "In the ", "choices": ["}}}}", "United States"], "label": 1},
    {"question": "Caf\u00e9 ", "choices": ["\u00fc", "in the "], "label": 1},
    {"question": "== External l", "choices": ["inks ==", "#####"], "label": 0},
]


def test_the_tokenizer_that_ships_has_bytes_for_ids():
    """Of every character but surrogates, of the name that the newline has in it, and of nothing."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    assert len(tokenizer) == 256 and tokenizer.eos_token_id == ord("\n")
    characters = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)]))
    for text in ("", "a\u00e9\n", "\u010a", " \n\n ", characters):
        tokens = tokenizer.encode(text)
        assert tokens == list(text.encode())
        assert tokenizer.decode(tokens) == text


def documented_arguments(url):
    """The model_args of the command in tests/examples/README.md, for the daemon at an url."""
    document = (ROOT / "tests/examples/README.md").read_text()
    command = re.search(r"^    lm_eval .*$", document, re.M).group(0)
    arguments = re.search(r"--model_args (\S+)", command).group(1)
    assert "tokenizer=weights/tokenizer" in arguments
    return arguments.replace("http://127.0.0.1:8080", url).replace("weights/tokenizer", str(TOKENIZER))


def score(daemon, text):
    """log-probabilities of the text's bytes but the first, natural."""
    request = urllib.request.Request(
        daemon.url + "/score", json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [math.log(2) * bits for bits in json.load(answer)["log2_probs"]]


@pytest.mark.parametrize("tokenized", [True, False])
def test_loglikelihoods_of_a_task(daemon, tmp_path, monkeypatch, tokenized):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    data = tmp_path / "docs.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    task = {
        "task": "small",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "label",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=f"{documented_arguments(daemon.url)},tokenized_requests={tokenized}",
        tasks=[task],
        batch_size=4 if tokenized else 1,
        log_samples=True,
        bootstrap_iters=0,
    )
    assert results["results"]["small"]["acc,none"] == 1.0
    for sample in results["samples"]["small"]:
        question, choices = sample["doc"]["question"], sample["doc"]["choices"]
        for choice, (logprob, _greedy) in zip(choices, sample["filtered_resps"], strict=True):
            asked = len(choice.encode()) + len(question) - len(question.rstrip())  # spaces before a choice are its own
            assert math.isclose(float(logprob), sum(score(daemon, question + choice)[-asked:]), abs_tol=1e-3)
