#!/usr/bin/env python3
"""Softmax attention served by llama.cpp beside AFT served by aftd, by how much past a stream has: bytes a second, and
memory of a stream.

    softmax.py --softmax MODEL_DIR [--aft MODEL_DIR] [--llama-server PROGRAM] [--past N ...] [--streams N ...]

MODEL_DIR of --softmax is a text model of the same size with the mixer attention and the activation gelu_tanh, which
llama.cpp knows as GPT-2 with 256 tokens. First both say how 100 bytes of it in f32 go on, which has to be the same.
Then each serves its own model, llama.cpp its matrices in Q8_0 and aftd in int8, and they take turns: texts of so many
bytes are continued in every stream, and what counts is what comes while all streams write. A past beyond what the
softmax model was trained for gets positions that repeat: it costs what it costs, but the text is nothing.

Needs what make deps-peers installs, and llama-server, as Debian's llama.cpp-tools has it.
"""
import argparse
import contextlib
import json
import os
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

from aft_train import ModelError, load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import ROOT, Daemon
from papers import chart_of

os.environ.pop("OMP_WAIT_POLICY", None)  # aft_train sets it, for itself: both servers wait as they do by default
ROUNDS, GREEDY, LIMIT_S = 5, 100, 600
STEP = 256  # llama.cpp's positions of a stream are a multiple of it
TEXT = (ROOT / "weights/FORMAT.md").read_bytes().replace(b"\n", b" ")  # ASCII, so that any part of it is a text


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

    where, bytes = "/completion", 256

    def __init__(self, program, path, model, streams, context, quantized):
        self.log, self.biases = tempfile.NamedTemporaryFile("w+"), write_gguf(path, model, context, quantized)
        self.stream_mb = 2 * 2 * model.config.depth * model.config.dim * context / 1e6  # keys and values in f16
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        exact = [] if quantized else ["--cache-type-k", "f32", "--cache-type-v", "f32"]
        self.process = subprocess.Popen(
            [program, "-m", path, "--host", "127.0.0.1", "--port", str(self.port), "-np", str(streams), "-c",
             str(streams * context), "--threads", "2", "--no-webui", *exact], stdout=self.log, stderr=self.log)
        end = time.monotonic() + LIMIT_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(Path(self.log.name).read_text()[-4000:])
            time.sleep(0.1)

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").status == 200
        except OSError:
            return False

    def body(self, prompt, slot, count, **more):
        return {"prompt": list(prompt), "id_slot": slot, "n_predict": count, "cache_prompt": True, "ignore_eos": True,
                "logit_bias": self.biases, "samplers": ["temperature"], "temperature": 1, **more}

    @staticmethod
    def written(lines, _):
        """How many bytes a stream has after these lines of events, of those before which it had `_`."""
        return max(map(int, re.findall(rb'"tokens_predicted":(\d+)', lines)), default=0)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Aftd:
    """aftd with one model. Prompts are fed in passes as large as llama.cpp's."""

    where, bytes = "/generate", 2048

    def __init__(self, model, streams, precision="int8"):
        self.daemon = Daemon("--models-dir=off", f"--model={model}", f"--streams-max={streams}", "--threads=2",
                             f"--precision={precision}", "--pass-rows-max=2048", f"--timeout-ms={1000 * LIMIT_S}",
                             f"--timeout-ms-max={1000 * LIMIT_S}")
        self.port, self.stop = self.daemon.port, self.daemon.stop
        self.stream_mb = float(re.search(r"streams of ([\d.]+) MB", self.daemon.said())[1])

    def body(self, prompt, _, count, **more):
        return {"prompt": prompt.decode(), "max_tokens": count, **more}

    @staticmethod
    def written(lines, before):
        return before + sum(map(int, re.findall(rb'"text":.*?"tokens":(\d+)', lines)))


def answer(server, body):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{server.where}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as told:
        return json.loads(told.read())


class Stream:
    """One answer as it comes."""

    def __init__(self, server, body):
        self.server, self.rest, self.bytes, self.ended = server, b"", 0, False
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                            b"application/json\r\nContent-Length: %d\r\n\r\n%s"
                            % (server.where.encode(), len(body), body))

    def read(self):
        told = self.socket.recv(1 << 16)
        lines, end, self.rest = (self.rest + told).rpartition(b"\n")
        if lines.startswith(b"HTTP/1.1 ") and not lines.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError((lines + end + self.rest).decode(errors="replace"))
        self.bytes = max(self.bytes, self.server.written(lines, self.bytes))
        self.ended = not told


def rate(server, prompts):
    """Bytes a second of all streams together, while all of them write; all are then read to their ends."""
    first = last = None  # (time, bytes)
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as chosen:
        streams = [Stream(server, json.dumps(server.body(prompt, i, server.bytes, stream=True)).encode())
                   for i, prompt in enumerate(prompts)]
        for stream in streams:
            stack.enter_context(stream.socket)
            chosen.register(stream.socket, selectors.EVENT_READ, stream)
        while chosen.get_map():
            ready = chosen.select(LIMIT_S)
            if not ready:
                raise RuntimeError(f"nothing came for {LIMIT_S} s")
            for key, _ in ready:
                key.data.read()
                if key.data.ended:
                    chosen.unregister(key.fileobj)
            if last is None and min(stream.bytes for stream in streams) > 0:
                now = time.monotonic(), sum(stream.bytes for stream in streams)
                first = first or now
                last = now if max(stream.bytes for stream in streams) >= server.bytes - 8 else None
    if last is None or last == first:
        raise RuntimeError("the streams did not write all at a time")
    return (last[1] - first[1]) / (last[0] - first[0])


def prompts_of(past, streams):
    """As many texts of `past` bytes that begin differently."""
    return [((b"%d " % i) + TEXT * (past // len(TEXT) + 1))[:past] for i in range(streams)]


def compare_texts(args, model, parent):
    """Raises RuntimeError where llama.cpp and aftd go on differently, both in f32, at temperature 0."""
    said, prompt, context = [], TEXT[:64], model.config.context
    for start in (lambda: Llama(args.llama_server, parent / "f32.gguf", model, 1, context, False),
                  lambda: Aftd(args.softmax, 1, "f32")):
        server = start()
        try:
            told = answer(server, server.body(prompt, 0, GREEDY) | {"temperature": 0})
            said.append(told["content"] if "content" in told else told["text"])
        finally:
            server.stop()
    if said[0] != said[1]:
        raise RuntimeError(f"llama.cpp says {said[0]!r}\naftd says      {said[1]!r}")
    print(f"{GREEDY} bytes of both in f32 at temperature 0 are the same: {said[0]!r}\n")


def models_of(args):
    """The softmax Model. Raises ModelError where the two are not of one size."""
    sizes = [(m.config.depth, m.config.dim, m.config.mlp_ratio) for m in map(load, (args.softmax, args.aft))]
    if sizes[0] != sizes[1]:
        raise ModelError(f"{args.softmax} has depth, dim and mlp_ratio {sizes[0]}, expected {sizes[1]} as {args.aft}")
    return load(args.softmax)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--softmax", required=True, metavar="MODEL_DIR")
    p.add_argument("--aft", default=str(ROOT / "weights/models/enwik8-aft-conv"), metavar="MODEL_DIR")
    p.add_argument("--llama-server", default="llama-server", metavar="PROGRAM")
    p.add_argument("--past", type=int, nargs="+", default=[64, 512, 4096], metavar="N")
    p.add_argument("--streams", type=int, nargs="+", default=[1, 64], metavar="N")
    p.add_argument("--chart", default="build/softmax.svg", metavar="FILE")
    args = p.parse_args()
    model, found = models_of(args), {}
    with tempfile.TemporaryDirectory() as parent:
        parent = Path(parent)
        compare_texts(args, model, parent)
        print("| past | streams | softmax by llama.cpp, Q8_0: bytes/s | MB a stream | AFT by aftd, int8: bytes/s | "
              "MB a stream | aftd / llama.cpp, median (worst) |\n" + "| ---: " * 7 + "|")
        for streams in args.streams:
            for past in args.past:
                prompts, context = prompts_of(past, streams), -(-(past + Llama.bytes) // STEP) * STEP
                with contextlib.ExitStack() as stack:
                    llama = Llama(args.llama_server, parent / "q8.gguf", model, streams, context, True)
                    stack.callback(llama.stop)
                    aftd = Aftd(args.aft, streams)
                    stack.callback(aftd.stop)
                    # The first round has llama.cpp read the prompts, which it keeps.
                    pairs = [(rate(llama, prompts), rate(aftd, prompts)) for _ in range(ROUNDS + 1)][1:]
                rates, ratios = [statistics.median(of) for of in zip(*pairs)], [b / a for a, b in pairs]
                for name, value in zip(("attention", "aft-conv"), rates):
                    found.setdefault(streams, {}).setdefault(name, {})[past] = value
                print(f"| {past:,} | {streams} | {rates[0]:,.0f} | {llama.stream_mb:.2f} | {rates[1]:,.0f} | "
                      f"{aftd.stream_mb:.2f} | {statistics.median(ratios):.1f} ({min(ratios):.1f}) |", flush=True)
    chart_of(args.chart, [(of, f"{streams} stream{'s' * (streams > 1)}, by bytes of past: bytes/s", "B/s", lambda v: v)
                          for streams, of in found.items()], ("attention", "aft-conv"))
    print(f"\n{args.chart}")


if __name__ == "__main__":
    main()
