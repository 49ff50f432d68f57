"""with_litellm.py [URL]: a text by LiteLLM, whole and in pieces."""

import os
import sys

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # do not fetch a list of prices first
import litellm

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
PROMPT = "The history of "


def ask(**options):
    return litellm.text_completion(
        model="text-completion-openai/enwik8-aft-conv",
        api_base=URL + "/v1",
        api_key="none",  # or a key of the daemon
        prompt=PROMPT,
        max_tokens=60,  # bytes
        temperature=0.7,
        seed=1,
        **options,
    )


print(PROMPT + ask().choices[0].text)
for chunk in ask(stream=True):
    print(chunk.choices[0].text or "", end="", flush=True)
print()
