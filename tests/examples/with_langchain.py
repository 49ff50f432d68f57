"""with_langchain.py [URL]: a text by LangChain's class for OpenAI's completions, whole and in pieces."""

import sys

from langchain_openai import OpenAI

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
PROMPT = "The history of "

writer = OpenAI(
    base_url=URL + "/v1",
    api_key="none",  # or a key of the daemon
    model="enwik8-aft-conv",
    max_tokens=60,  # bytes
    temperature=0.7,
    seed=1,
)
print(PROMPT + writer.invoke(PROMPT))
for piece in writer.stream(PROMPT):
    print(piece, end="", flush=True)
print()
