#!/usr/bin/env python3
"""plain.py [URL [PICTURE [PROMPT]]]: labels of a picture, and a text as it is written, with nothing but Python."""

import json
import sys
import urllib.error
import urllib.request

DEFAULTS = ["http://127.0.0.1:8080", "weights/models/cifar10-aft-conv/sample.jpg", "The history of "]
URL, PICTURE, PROMPT = sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :]


def post(path, body, kind):
    """The answer as a file, which gives a stream's lines as they come."""
    try:
        return urllib.request.urlopen(urllib.request.Request(URL + path, body, {"Content-Type": kind}), timeout=60)
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"]["message"])


def main():
    with open(PICTURE, "rb") as picture, post("/classify?top_k=3", picture.read(), "image/jpeg") as answer:
        for best in json.load(answer)["predictions"]:
            print(f"{best['probability']:.4f} {best['label']}")
    fields = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0.7, "seed": 1, "stream": True}
    print(PROMPT, end="")
    with post("/generate", json.dumps(fields).encode(), "application/json") as events:
        for line in events:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                if "error" in event:
                    sys.exit(event["error"]["message"])
                print(event.get("text", ""), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
