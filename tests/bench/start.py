#!/usr/bin/env python3
"""start.py [--starts N] [--models DIR] [PROGRAM...]: how long after its start a daemon has answered first, and how much
memory it has then. N starts (21), each anew, of build/aftd or of each PROGRAM in turn, for each request below. The
standard library alone."""

import argparse
import http.client
import os
import pathlib
import re
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("AFTD_")}
REQUESTS = {  # what is asked first -> path, body, head
    "a byte of text": ("/generate", b'{"max_tokens": 1}', JSON),
    "a text's label": ("/classify", b'{"text": "int main(void)"}', JSON),
    "a picture's label": ("/classify", (ROOT / "weights/models/cifar10-aft-conv/sample.jpg").read_bytes(), {}),
}


def started(program, models, path, body, head):
    """(milliseconds from the start to the whole of the first answer, MB of memory of the process's own then)"""
    then = time.monotonic()
    daemon = subprocess.Popen([program, "--models-dir", models, "--listen-port=0", "--admin-address=off",
                               "--metrics-address=off"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        said, found = "", None
        while not found:
            line = daemon.stderr.readline()
            said += line
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            assert line, f"{program} does not listen:\n{said}"
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("POST", path, body, head)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        took = time.monotonic() - then
        status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
        return 1000 * took, int(status.split("RssAnon:")[1].split()[0]) / 1000
    finally:
        daemon.terminate()
        daemon.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=21)
    parser.add_argument("--models", default=str(ROOT / "weights/models"))
    parser.add_argument("programs", nargs="*", default=[str(ROOT / "build/aftd")], metavar="PROGRAM")
    args = parser.parse_args()
    print("| program | first asked for | ms, median | ms, worst | MB |\n| --- | --- | ---: | ---: | ---: |")
    for name, request in REQUESTS.items():
        runs = [[started(p, args.models, *request) for p in args.programs] for _ in range(args.starts)]
        for program, of_program in zip(args.programs, zip(*runs)):
            took, memory = zip(*of_program)
            print(f"| {program.removeprefix(f'{ROOT}/')} | {name} | {statistics.median(took):.0f} | {max(took):.0f} | "
                  f"{statistics.median(memory):.0f} |", flush=True)


if __name__ == "__main__":
    main()
