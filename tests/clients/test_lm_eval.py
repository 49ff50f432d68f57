"""lm-eval's local-completions, as it is, against the daemon: a small task of its multiple_choice kind, by token ids and
by texts, with batches; its figures must be those that /score gives."""

import json
import math
import urllib.request

import pytest

lm_eval = pytest.importorskip("lm_eval", reason="the lm-eval package is not installed: make deps-clients")
tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed: make deps-clients")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make deps-clients")

DOCS = [
    {"question": "The capital of France is [[", "choices": ["Paris", "qzxv"], "label": 0},
    {"question": "See also: [http://www", "choices": [".", "Zx"], "label": 0},
    {"question": "In the ", "choices": ["}}}}", "United States"], "label": 1},
    {"question": "Caf\u00e9 ", "choices": ["\u00fc", "in the "], "label": 1},
    {"question": "== External l", "choices": ["inks ==", "#####"], "label": 0},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer for which a token's id is its byte, as a folder."""
    folder = tmp_path_factory.mktemp("tokenizer")
    # GPT-2's names of bytes: these are named by themselves, others from 256 on
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(256 + i) for i in range(256))
    names = {chr(byte) if byte in shown else next(others): byte for byte in range(256)}
    bytewise = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=names, merges=[]))
    bytewise.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = tokenizers.decoders.ByteLevel()
    newline = next(name for name, byte in names.items() if byte == 10)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token=newline)
    fast.save_pretrained(folder)
    assert fast.encode("a\u00e9\n") == list("a\u00e9\n".encode())
    return folder


def score(daemon, text):
    """log-probabilities of the text's bytes but the first, natural."""
    request = urllib.request.Request(
        daemon.url + "/score", json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [math.log(2) * bits for bits in json.load(answer)["log2_probs"]]


@pytest.mark.parametrize("tokenized", [True, False])
def test_loglikelihoods_of_a_task(daemon, tokenizer, tmp_path, monkeypatch, tokenized):
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
        model_args={
            "model": "enwik8-aft-local",
            "base_url": daemon.url + "/v1/completions",
            "tokenizer_backend": "huggingface",
            "tokenizer": str(tokenizer),
            "tokenized_requests": tokenized,
            "max_length": 512,
        },
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
