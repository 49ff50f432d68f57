#!/usr/bin/env python3
"""Softmax attention served by llama.cpp beside AFT served by aftd, by how much past a stream has: bytes a second, and
memory of a stream.

    softmax.py --softmax MODEL_DIR [--aft MODEL_DIR] [--llama-server PROGRAM] [--past N ...] [--streams N ...]

MODEL_DIR of --softmax is a text model with the mixer attention and the activation gelu_tanh, which llama.cpp knows as
GPT-2 with 256 tokens; it gets the matrices in Q8_0 beside aftd's int8. First both say how 100 bytes of its f32 go on,
which has to be the same. Then each serves its own model; both run all the while and take turns, each of which is BYTES
bytes after the past for every stream, of which those count that come while all streams do. A past beyond what it was
trained for gets positions that repeat: it costs what it costs, but the text is nothing.

Needs what make deps-peers installs, and llama-server, as Debian's llama.cpp-tools has it.
"""
import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import gguf
import numpy as np

from aft_train import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import ROOT, Daemon
from papers import chart_of

BYTES, ROUNDS, GREEDY, START_S = 128, 5, 100, 120
STEP = 256  # llama.cpp's positions of a stream are a multiple of it
TEXT = (ROOT / "weights/FORMAT.md").read_bytes().replace(b"\n", b" ")


def token_names():
    """GPT-2's names of the 256 bytes: themselves where they can be seen, else characters from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in seen else next(others)) for b in range(256)]


def write_gguf(path, model, context, quantized):
    """The Model as a GPT-2 of llama.cpp, with `context` positions."""
    c, state = model.config, {name: p.detach().float().numpy() for name, p in model.state_dict().items()}
    w = gguf.GGUFWriter(path, "gpt2")
    w.add_block_count(c.depth)
    w.add_context_length(context)
    w.add_embedding_length(c.dim)
    w.add_feed_forward_length(c.mlp_ratio * c.dim)
    w.add_head_count(c.mixer.heads)
    w.add_layer_norm_eps(c.norm_eps)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(token_names())
    w.add_token_types([gguf.TokenType.NORMAL] * 256)
    w.add_token_merges([f"{chr(0x2581)} {chr(0x2581)}"])  # of characters that no byte has: there has to be one
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)

    def matrix(name, value):
        if quantized:
            value = gguf.quants.quantize(value, gguf.GGMLQuantizationType.Q8_0)
            w.add_tensor(name, value, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            w.add_tensor(name, value)

    def linear(name, parts):
        matrix(f"{name}.weight", np.concatenate([state[f"{part}.weight"] for part in parts]))
        w.add_tensor(f"{name}.bias", np.concatenate([state[f"{part}.bias"] for part in parts]))

    def norm(name, source):
        w.add_tensor(f"{name}.weight", state[f"{source}.weight"])
        w.add_tensor(f"{name}.bias", state[f"{source}.bias"])

    w.add_tensor("token_embd.weight", state["tok_embed"])
    w.add_tensor("position_embd.weight", np.resize(state["pos_embed"], (context, c.dim)))
    for i in range(c.depth):
        own, block = f"blk.{i}", f"blocks.{i}"
        norm(f"{own}.attn_norm", f"{block}.norm1")
        linear(f"{own}.attn_qkv", [f"{block}.mixer.{part}" for part in "qkv"])
        linear(f"{own}.attn_output", [f"{block}.mixer.out"])
        norm(f"{own}.ffn_norm", f"{block}.norm2")
        linear(f"{own}.ffn_up", [f"{block}.mlp.fc1"])
        linear(f"{own}.ffn_down", [f"{block}.mlp.fc2"])
    norm("output_norm", "norm")
    w.add_tensor("output.weight", state["head.weight"])  # f32, as aftd has it
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return [[byte, float(bias)] for byte, bias in enumerate(state["head.bias"])]  # which GPT-2 has none of


class Llama:
    """llama-server of a Model, written to `path`, with as many slots as streams of `context` positions."""

    path, count = "/completion", re.compile(rb'"tokens":\[(\d)')

    def __init__(self, program, path, model, streams, context, quantized):
        self.log, self.biases = tempfile.NamedTemporaryFile("w+"), write_gguf(path, model, context, quantized)
        self.stream_mb = 2 * 2 * model.config.depth * model.config.dim * context / 1e6  # keys and values in f16
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen(
            [program, "-m", path, "--host", "127.0.0.1", "--port", str(self.port), "-np", str(streams), "-c",
             str(streams * context), "--threads", "2", "--no-webui"], stdout=self.log, stderr=self.log)
        end = time.monotonic() + START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(Path(self.log.name).read_text()[-4000:])
            time.sleep(0.1)

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").status == 200
        except OSError:
            return False

    def body(self, prompt, slot, count, **more):
        return {"prompt": list(prompt), "id_slot": slot, "n_predict": count, "cache_prompt": True, "ignore_eos": True,
                "logit_bias": self.biases, "return_tokens": True, **more}

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Aftd:
    """aftd with one model."""

    path, count = "/generate", re.compile(rb'"text":".*?"tokens":(\d+)')

    def __init__(self, model, streams, precision="auto"):
        self.daemon = Daemon("--models-dir=off", f"--model={model}", f"--streams-max={streams}", "--threads=2",
                             f"--precision={precision}")
        self.port, self.stop = self.daemon.port, self.daemon.stop
        self.stream_mb = float(re.search(r"streams of ([\d.]+) MB", self.daemon.said())[1])

    def body(self, prompt, _, count, **more):
        return {"prompt": prompt.decode(), "max_tokens": count, **more}


def answer(server, body):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{server.path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as told:
        return json.loads(told.read())


def rate(server, prompts):
    """Bytes a second of all streams together, while all of them run."""
    chosen, counts, first, before = selectors.DefaultSelector(), [0] * len(prompts), None, 0
    connections = []
    for i, prompt in enumerate(prompts):
        body = json.dumps(server.body(prompt, i, BYTES, stream=True)).encode()
        connections.append(socket.create_connection(("127.0.0.1", server.port)))
        connections[-1].sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                b"Content-Length: %d\r\n\r\n%s" % (server.path.encode(), len(body), body))
        chosen.register(connections[-1], selectors.EVENT_READ, i)
    try:
        while True:
            for key, _ in chosen.select(START_S):
                told = key.fileobj.recv(1 << 16)
                if not told:
                    raise RuntimeError("a stream broke")
                counts[key.data] += sum(int(n) if server.path == Aftd.path else 1 for n in server.count.findall(told))
            now = time.monotonic()
            if max(counts) >= BYTES - 8:
                return (sum(counts) - before) / (now - first) if first else 0.0
            if first is None and min(counts) > 0:
                first, before = now, sum(counts)
    finally:
        for connection in connections:
            connection.close()


def prompts_of(past, streams):
    """As many texts of `past` bytes that begin differently."""
    return [((b"%d " % i) + TEXT * (past // len(TEXT) + 1))[:past] for i in range(streams)]


def compare_texts(args, model, parent):
    """Raises RuntimeError where llama.cpp and aftd go on differently, both in f32, at temperature 0."""
    said, prompt = [], TEXT[:64]
    for server in (Llama(args.llama_server, parent / "f32.gguf", model, 1, model.config.context, False),
                   Aftd(args.softmax, 1, "f32")):
        try:
            told = answer(server, server.body(prompt, 0, GREEDY, temperature=0))
            said.append(told["content"] if "content" in told else told["text"])
        finally:
            server.stop()
    if said[0] != said[1]:
        raise RuntimeError(f"llama.cpp says {said[0]!r}\naftd says      {said[1]!r}")
    print(f"{GREEDY} bytes of both in f32 at temperature 0 are the same: {said[0]!r}\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--softmax", required=True, metavar="MODEL_DIR")
    p.add_argument("--aft", default=str(ROOT / "weights/models/enwik8-aft-conv"), metavar="MODEL_DIR")
    p.add_argument("--llama-server", default="llama-server", metavar="PROGRAM")
    p.add_argument("--past", type=int, nargs="+", default=[64, 512, 4096], metavar="N")
    p.add_argument("--streams", type=int, nargs="+", default=[1, 64], metavar="N")
    p.add_argument("--chart", default="build/softmax.svg", metavar="FILE")
    args = p.parse_args()
    model, found = load(args.softmax), {}
    with tempfile.TemporaryDirectory() as parent:
        parent = Path(parent)
        compare_texts(args, model, parent)
        print("| past | streams | softmax by llama.cpp, Q8_0: bytes/s | MB a stream | AFT by aftd, int8: bytes/s | "
              "MB a stream | aftd / llama.cpp, median (worst) |\n" + "| ---: " * 7 + "|")
        for streams in args.streams:
            for past in args.past:
                prompts, context = prompts_of(past, streams), -(-(past + BYTES) // STEP) * STEP
                servers = [Llama(args.llama_server, parent / "q8.gguf", model, streams, context, True),
                           Aftd(args.aft, streams)]
                try:
                    rates = [[rate(server, prompts) for server in servers] for _ in range(ROUNDS + 1)][1:]
                finally:
                    for server in servers:
                        server.stop()
                llama, aftd = ([r[i] for r in rates] for i in (0, 1))
                ratios = [b / a for a, b in rates]
                for name, values in (("attention", llama), ("aft-conv", aftd)):
                    found.setdefault(streams, {}).setdefault(name, {})[past] = statistics.median(values)
                print(f"| {past:,} | {streams} | {statistics.median(llama):,.0f} | {servers[0].stream_mb:.2f} | "
                      f"{statistics.median(aftd):,.0f} | {servers[1].stream_mb:.2f} | {statistics.median(ratios):.1f} "
                      f"({min(ratios):.1f}) |", flush=True)
    chart_of(args.chart, [(of, f"{streams} stream{'s' * (streams > 1)}, by bytes of past: bytes/s", "B/s", lambda v: v)
                          for streams, of in found.items()], ("attention", "aft-conv"))
    print(f"\n{args.chart}")


if __name__ == "__main__":
    main()
