#!/usr/bin/env python3
"""One peer in a process of its own, so that its threads and memory disturb no other: started by peers.py.

    peer_worker.py '{"kind": "torch", "model": DIR, "precision": "f32", "threads": 2, "cases": [1, 8]}'

Builds everything, compares logits with those of the model's cases.safetensors, which are the twin's in float64, runs
each case once, and says so in a line of JSON; then, for each line {"case": ..., "seconds": S} that it reads, it repeats
the case for that long and answers with the median of one run, {"seconds": ...}.
"""
import contextlib
import ctypes
import ctypes.util
import json
import os
import statistics
import sys
import time

RUNS_MIN = 3


def repeat(run, seconds):
    """-> the median of what one run takes"""
    times, end = [], time.perf_counter() + seconds
    while len(times) < RUNS_MIN or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def error_of(got, want):
    """As aft verify reckons it: the largest difference over the largest logit, if that is above 1."""
    return float((got.float() - want).abs().max() / max(1.0, want.abs().max()))


def read_case(spec):
    """The model's first case: its input, uint8, and logits."""
    from aft_train.export import CASES, read_file

    cases = read_file(os.path.join(spec["model"], CASES))
    return cases["input.0"], cases["logits.0"]


def picture_batches(spec, twin):
    """-> {case: the first case's picture so many times}, its logits"""
    from aft_train.export import model_input

    picture, logits = read_case(spec)
    picture = model_input(twin, picture[None])
    return {n: picture.repeat(n, 1, 1, 1) for n in spec["cases"]}, logits


def compile_blocks(module):
    """torch.compile block by block: all share one program, where a whole model takes minutes for each batch."""
    for block in module.blocks:
        block.compile(dynamic=False)
    return module


class TorchPictures:
    def __init__(self, spec, twin):
        import torch
        from peer_models import Pictures

        self.torch, self.about = torch, f"PyTorch {torch.__version__}"
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[spec["precision"]]
        self.run = Pictures(twin).eval().to(dtype)
        if spec["kind"] == "torch-compiled":
            compile_blocks(self.run)
        batches, want = picture_batches(spec, twin)
        self.inputs = {n: x.to(dtype) for n, x in batches.items()}
        self.error = max(error_of(self.run(x), want) for x in self.inputs.values())

    def measure(self, case, seconds):
        return repeat(lambda: self.run(self.inputs[case]), seconds)


def onnx_file(spec, twin):
    """-> the path of the model as an ONNX graph"""
    import onnx
    from peer_models import Pictures, picture_graph

    path = os.path.join(spec["scratch"], f"pictures-{os.getpid()}.onnx")
    onnx.save(picture_graph(Pictures(twin)), path)
    return path


class OnnxPictures:
    def __init__(self, spec, twin):
        import onnxruntime
        import torch

        self.about = f"ONNX Runtime {onnxruntime.__version__}"
        path = onnx_file(spec, twin)
        if spec["precision"] == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(path, path + ".int8", op_types_to_quantize=["MatMul"], per_channel=True,
                             weight_type=QuantType.QInt8)
            path += ".int8"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = spec["threads"], 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        batches, want = picture_batches(spec, twin)
        self.inputs = {n: x.numpy() for n, x in batches.items()}
        self.error = max(error_of(torch.from_numpy(self.answer(x)), want) for x in self.inputs.values())

    def answer(self, pictures):
        return self.session.run(["logits"], {"pictures": pictures})[0]

    def measure(self, case, seconds):
        return repeat(lambda: self.answer(self.inputs[case]), seconds)


class OpenVinoPictures:
    """In int8 with scales of activations from the model's own picture: ONNX Runtime's graph, whose rows are scaled as
    they come, would be computed in float32."""

    def __init__(self, spec, twin):
        import openvino
        import torch

        self.about = f"OpenVINO {openvino.__version__.split('-')[0]}"
        batches, want = picture_batches(spec, twin)
        self.inputs = {n: x.numpy() for n, x in batches.items()}
        path = onnx_file(spec, twin)
        if spec["precision"] == "int8":
            path = self.quantize(path, self.inputs[min(self.inputs)])
        options = {"INFERENCE_PRECISION_HINT": {"bf16": "bf16"}.get(spec["precision"], "f32"),
                   "INFERENCE_NUM_THREADS": spec["threads"], "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        self.requests = {}
        for n, x in self.inputs.items():
            model = openvino.Core().read_model(path)
            model.reshape(list(x.shape))
            compiled = openvino.compile_model(model, "CPU", options)
            if spec["precision"] == "bf16" and compiled.get_property("INFERENCE_PRECISION_HINT") != openvino.Type.bf16:
                raise RuntimeError("it does not compute in bf16 here")
            self.requests[n] = compiled.create_infer_request()
        self.error = max(error_of(torch.from_numpy(self.answer(n)), want) for n in self.inputs)

    @staticmethod
    def quantize(path, picture):
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

        class Once(CalibrationDataReader):
            left = [{"pictures": picture}]

            def get_next(self):
                return self.left.pop() if self.left else None

        quantize_static(path, path + ".int8", Once(), op_types_to_quantize=["MatMul"], per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        return path + ".int8"

    def answer(self, case):
        return self.requests[case].infer({0: self.inputs[case]}, share_inputs=True)[0]

    def measure(self, case, seconds):
        return repeat(lambda: self.answer(case), seconds)


class TorchStreams:
    def __init__(self, spec, twin):
        import torch
        from peer_models import Recurrent

        self.torch, self.about = torch, f"PyTorch {torch.__version__}"
        self.recurrent = Recurrent(twin).eval()
        if spec["kind"] == "torch-compiled":
            compile_blocks(self.recurrent)
        self.states = {n: self.recurrent.state(n) for n in spec["cases"]}
        self.position, self.error = {}, 0.0
        text, want = read_case(spec)
        for n in spec["cases"]:
            got = torch.stack([self.step(n, byte.long().expand(n), t) for t, byte in enumerate(text)], dim=1)
            self.error = max(self.error, error_of(got, want))
            self.position[n] = len(text)

    def step(self, streams, read, position):
        at = self.torch.tensor([position])
        return self.recurrent(read, at, at % self.recurrent.window, self.states[streams])

    def measure(self, case, seconds):
        read = self.torch.arange(case) % 256

        def one():
            if self.position[case] == self.recurrent.tokens:
                self.position[case] = 0  # the state goes on: what a step costs does not depend on it
            self.step(case, read, self.position[case])
            self.position[case] += 1

        return repeat(one, seconds)


class OpenBlas:
    """cblas_sgemm of the library that aft links, as many threads as it is told: C [m, n] = A [m, k] B [n, k]^T."""

    def __init__(self, spec, _):
        self.blas = ctypes.CDLL(ctypes.util.find_library("openblas") or "libopenblas.so.0")
        self.blas.openblas_get_config.restype = ctypes.c_char_p
        self.blas.openblas_set_num_threads(spec["threads"])
        self.about, self.error = self.blas.openblas_get_config().decode(), 0.0

    def measure(self, case, seconds):
        import numpy as np

        m, n, k = case
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (n, k)))
        c = np.zeros((m, n), np.float32)
        at = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
        one, nothing = ctypes.c_float(1.0), ctypes.c_float(0.0)
        return repeat(lambda: self.blas.cblas_sgemm(101, 111, 112, m, n, k, one, at[0], k, at[1], k, nothing, at[2], n),
                      seconds)


KINDS = {("pictures", "torch"): TorchPictures, ("pictures", "torch-compiled"): TorchPictures,
         ("pictures", "onnxruntime"): OnnxPictures, ("pictures", "openvino"): OpenVinoPictures,
         ("streams", "torch"): TorchStreams, ("streams", "torch-compiled"): TorchStreams,
         ("products", "openblas"): OpenBlas}


def build(spec, stack):
    """-> the peer, each case run once; the stack keeps what holds as long as it is used"""
    twin = None
    if spec.get("model"):
        import torch

        from aft_train import load

        torch.set_num_threads(spec["threads"])
        stack.enter_context(torch.inference_mode())
        twin = load(spec["model"])
    peer = KINDS[spec["work"], spec["kind"]](spec, twin)
    for case in spec["cases"]:
        peer.measure(case, 0.0)
    return peer


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries' own words
    try:
        with contextlib.ExitStack() as stack:
            peer = build(json.loads(sys.argv[1]), stack)
            print(json.dumps({"about": peer.about, "error": peer.error}), file=answers)
            for line in sys.stdin:
                wish = json.loads(line)
                print(json.dumps({"seconds": peer.measure(wish["case"], wish["seconds"])}), file=answers)
    except Exception as e:  # whatever it is: the others go on
        reason = f"{type(e).__name__}: {str(e).strip() or 'no reason given'}"
        print(json.dumps({"failed": reason.splitlines()[0]}), file=answers)


if __name__ == "__main__":
    main()
