#!/usr/bin/env python3
"""From the start of aftd and of llama.cpp's server to the first byte that each writes, and their memory at most by
then, mapped files included: start_beside.py [--llama-server PROGRAM] [--starts N].

AFT-local and softmax attention of equal depth and width with random weights: aftd serves f32 and int8 from a file in
f32, llama.cpp f32 and Q8_0 from files of those. They take turns, their files in the page cache. Needs what make
deps-peers installs, and llama-server, as Debian's llama.cpp-tools has it.
"""
import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from softmax import LIMIT_S, ROOT, write_gguf

from aft_train import MixerConfig, Model, ModelConfig, export

SIZES = {"L24 d256": (24, 256), "L12 d512": (12, 512)}
CONTEXT, PROMPT = 1024, "The "


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(command, path, body):
    """(milliseconds from the start to the whole of an answer of one byte, MB of memory at most)"""
    port, then = free_port(), time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(a).replace("PORT", str(port)) for a in command], stdout=log, stderr=log)
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            while True:
                try:
                    urllib.request.urlopen(request).read()
                    break
                except OSError as e:  # it does not listen yet, or it says 503 until its model is there
                    if process.poll() is not None or time.monotonic() > then + LIMIT_S:
                        log.seek(0)
                        raise RuntimeError(f"{e}\n{log.read()[-4000:]}") from None
                    time.sleep(0.001)
            took = time.monotonic() - then
            peak = Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
            return 1000 * took, int(peak) / 1000
        finally:
            process.kill()
            process.wait()


def commands(args, parent, depth, dim):
    """{what: (command, path, body)} of both servers and precisions."""
    def model(mixer, activation):
        return Model(ModelConfig("text-generation", dim=dim, depth=depth, context=CONTEXT, mixer=mixer,
                                 activation=activation))

    aft, softmax, found = parent / f"aft-{depth}", model(MixerConfig("attention", heads=8), "gelu_tanh"), {}
    export(model(MixerConfig("aft-local", window=32), "gelu"), aft, [PROMPT.encode()])
    for precision, quantized in (("f32", False), ("int8", True)):
        gguf = parent / f"{depth}-{precision}.gguf"
        write_gguf(gguf, softmax, CONTEXT, quantized)
        found[f"aftd, {precision}"] = (
            [ROOT / "build/aftd", "--models-dir=off", f"--model={aft}", "--listen-port=PORT", "--admin-address=off",
             "--metrics-address=off", "--threads=2", f"--precision={precision}"],
            "/generate", {"prompt": PROMPT, "max_tokens": 1})
        found[f"llama.cpp, {'Q8_0' if quantized else precision}"] = (
            [args.llama_server, "-m", gguf, "--host", "127.0.0.1", "--port", "PORT", "-np", "1", "-c", CONTEXT,
             "--threads", "2", "--no-webui"],
            "/completion", {"prompt": list(PROMPT.encode()), "n_predict": 1})
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--llama-server", default="llama-server", metavar="PROGRAM")
    p.add_argument("--starts", type=int, default=9)
    args = p.parse_args()
    print("| size | server | ms, median | ms, worst | MB |\n| --- | --- | ---: | ---: | ---: |")
    for size, (depth, dim) in SIZES.items():
        with tempfile.TemporaryDirectory() as parent:
            of = commands(args, Path(parent), depth, dim)
            runs = [[started(*command) for command in of.values()] for _ in range(args.starts + 1)][1:]
        for name, of_server in zip(of, zip(*runs)):
            took, memory = zip(*of_server)
            print(f"| {size} | {name} | {statistics.median(took):.0f} | {max(took):.0f} | "
                  f"{statistics.median(memory):.0f} |", flush=True)


if __name__ == "__main__":
    main()
