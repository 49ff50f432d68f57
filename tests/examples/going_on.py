#!/usr/bin/env python3
"""going_on.py [URL [PROMPT [BYTES]]]: a text as it is written, whatever becomes of the connection or the daemon."""

import http.client
import json
import random
import sys
import time
import urllib.error
import urllib.request

DEFAULTS = ["http://127.0.0.1:8080", "The history of ", "200"]
URL, PROMPT, BYTES = sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :]


def generate(url, fields, tries=8):
    """Yields the text piece by piece; raises what cannot pass, and what has not passed after so many tries."""
    body, left, failure = {**fields, "stream": True, "moves": True}, tries, None
    while left > 0:
        try:
            answer = urllib.request.urlopen(urllib.request.Request(
                url + "/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=60)
            for line in answer:
                if line.startswith(b"id: "):
                    place = line[4:].strip().decode()
                elif line.startswith(b"data: ") and line.endswith(b"\n"):
                    event = json.loads(line[6:])
                    body["from"] = place
                    if "error" in event:
                        raise RuntimeError(event["error"]["message"])
                    if "text" in event:
                        left = tries
                        yield event["text"]
                    elif event["finish_reason"] != "moved":
                        return
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in (502, 503, 504):
                raise
            failure = error
        time.sleep(min(5, 0.2 * 2 ** (tries - left)) * random.uniform(0.5, 1))
        left -= 1
    raise failure or EOFError("the text ends in the middle")


def main():
    for piece in generate(URL, {"prompt": PROMPT, "max_tokens": int(BYTES), "seed": 1}):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
