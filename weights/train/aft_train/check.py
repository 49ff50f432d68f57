"""Check model directories with the PyTorch twin: aft-train check DIR...

Runs every input of a directory's cases.safetensors (input.K, logits.K for K = 0, 1, ...) in float32 and compares, as
`aft verify` does with the served engine.
"""
import argparse
import sys

import numpy as np
from safetensors import SafetensorError, safe_open

from .export import CASES, ModelError, check_input, load, logits_of
from .recipe import called


def read_cases(model_dir):
    """cases.safetensors -> [(uint8 input, float32 logits)]. Raises ModelError: every tensor must have its turn."""
    path = f"{model_dir}/{CASES}"
    try:
        with safe_open(path, "pt") as f:  # numpy has no bf16
            tensors = {name: f.get_tensor(name) for name in f.keys()}
    except (OSError, SafetensorError) as e:
        raise ModelError(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    count = max(1, (len(tensors) + 1) // 2)
    for k in range(count):
        for kind in ("input", "logits"):
            if f"{kind}.{k}" not in tensors:
                raise ModelError(f"{path}: {kind}.{k} is missing")
    return [(tensors[f"input.{k}"].numpy(), tensors[f"logits.{k}"].float().numpy()) for k in range(count)]


def difference(got, want):
    """max|got - want| / max(1, max|want|); NaN if a number is."""
    return np.abs(got.astype(np.float64) - want).max() / max(1.0, np.abs(want).max())


def check(model_dir):
    """-> (largest `difference` over the cases, NaN once one was not finite; number of cases). Raises ModelError."""
    model, cases = load(model_dir), read_cases(model_dir)
    worst = []
    for k, (x, want) in enumerate(cases):
        try:
            check_input(model, x)
        except ModelError as e:
            raise ModelError(f"{model_dir}/{CASES}: input.{k} {e}") from None
        got = logits_of(model, x)
        if got.shape != want.shape:
            raise ModelError(f"{model_dir}/{CASES}: logits.{k} has shape {list(want.shape)}, "
                             f"expected {list(got.shape)}")
        worst.append(difference(got, want))
    return np.max(worst), len(cases)


def tolerance(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not within 0..1")
    return value


def parser(prog="aft-train check"):
    p = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    p.add_argument("dirs", nargs="+", metavar="DIR", help="model directories with a cases.safetensors")
    p.add_argument("--tolerance", type=tolerance, default=1e-4,
                   help="largest error that passes, relative to max(1, max|want|) (1e-4)")
    return p


def main(argv=None, name="aft_train.check"):
    args = parser(called(name)).parse_args(argv)
    passed = 0
    for model_dir in args.dirs:
        try:
            worst, count = check(model_dir)
        except ModelError as e:
            print(f"FAILED  {e}")
            continue
        ok = bool(worst <= args.tolerance)  # not for NaN
        passed += ok
        print(f"{'ok    ' if ok else 'FAILED'}  {worst:<8.2g}  {model_dir} ({count} input{'' if count == 1 else 's'})")
    print(f"{passed} passed, {len(args.dirs) - passed} failed")
    return 0 if passed == len(args.dirs) else 1


if __name__ == "__main__":
    sys.exit(main())
