#!/usr/bin/env python3
"""What share of the machine's own limit each figure that aftd is held to reaches, beside the share it aims at.

    tests/bench/targets.py [--rounds N] [--threads N]
        from the project's root, after make programs build/tests/bench/limits

The standard library alone. For the models of the papers' sizes in each precision limits.c and `aft bench` take turns,
so that a machine which changes its speed changes both: a share of each turn, of which the median counts, as of figures.
The table goes to build/bench/targets.md and all figures to targets.json.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

AFT, LIMITS = Path("build/aft"), Path("build/tests/bench/limits")
OUT = Path("build/bench")
PICTURES, TEXT, LARGE = "aft-conv-small-224", "aft-local-24x256", "aft-local-12x512"
# What is shown, the model, the figure of aft bench, and the shares aimed at by precision; None: not aimed at.
FIGURES = (
    ("classify, batch 8, images/s", PICTURES, "images_per_second_batch_8", (0.88, 0.82, 0.75)),
    ("classify, batch 1, images/s", PICTURES, "images_per_second_batch_1", None),
    ("L24 d256, 1 stream, bytes/s", TEXT, "bytes_per_second_1_streams", (0.75, 0.60, 0.50)),
    ("L24 d256, 8 streams, bytes/s", TEXT, "bytes_per_second_8_streams", (0.75, 0.70, 0.65)),
    ("L24 d256, 64 streams, bytes/s", TEXT, "bytes_per_second_64_streams", (0.70, 0.65, 0.50)),
    ("L24 d256, prefill, bytes/s", TEXT, "prefill_bytes_per_second", (0.75, 0.70, 0.55)),
    ("L12 d512, 1 stream, bytes/s", LARGE, "bytes_per_second_1_streams", (0.75, 0.60, 0.50)),
    ("L12 d512, 8 streams, bytes/s", LARGE, "bytes_per_second_8_streams", (0.75, 0.70, 0.65)),
    ("L12 d512, 64 streams, bytes/s", LARGE, "bytes_per_second_64_streams", (0.70, 0.65, 0.50)),
    ("L12 d512, prefill, bytes/s", LARGE, "prefill_bytes_per_second", (0.75, 0.70, 0.55)),
)
PRECISIONS = ("f32", "bf16", "int8")
POSITIONS = 1.02  # a step at byte 1000 costs at most that much more than one at byte 64


RUNS = 3  # of aft bench in one turn


def run(program, *arguments, model, precision, options):
    command = [program, *arguments, "--synthetic", model, "--json", "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "AFTD_PRECISION": precision})
    if done.returncode != 0:
        sys.exit(f"{program} of {model} in {precision}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(**what):
    """{what is told of the model, each figure's median, "worst": {figure: the lowest}, "shares": {figure: its median
    share of the limit}}"""
    turns = [(run(LIMITS, **what), run(AFT, "bench", "--runs", str(RUNS), **what))
             for _ in range(what["options"].rounds)]
    result = {key: statistics.median(figures[key] for _, figures in turns) if isinstance(value, float) else value
              for key, value in turns[0][1].items()}
    result["worst"] = {key: min(figures[key] for _, figures in turns) for key in turns[0][0]["limits"]}
    result["shares"] = {key: statistics.median(figures[key] / limits["limits"][key] for limits, figures in turns)
                        for key in turns[0][0]["limits"]}
    return result


def cell(result, key, aim):
    digits, share = 1 if result[key] < 100 else 0, result["shares"][key]
    text = f"{result[key]:,.{digits}f}, {result['worst'][key]:,.{digits}f} ({share:.2f}"
    return text + ")" if aim is None else text + f" of {aim:.2f}{'' if round(share, 2) >= aim else ', missed'})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of which each figure and share is the median (5)")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each processor (0)")
    options = parser.parse_args()
    results = {}
    for model in (PICTURES, TEXT, LARGE):
        for precision in PRECISIONS:
            print(f"{model}, {precision}", file=sys.stderr, flush=True)
            results[model, precision] = measure(model=model, precision=precision, options=options)
    some = results[PICTURES, "f32"]
    lines = [f"{some['isa']}, {some['threads']} threads: median, worst of {options.rounds} (share of the limit, of the "
             "share aimed at)", "",
             f"| | {' | '.join(PRECISIONS)} |", "| --- | --- | --- | --- |"]
    for name, model, key, aims in FIGURES:
        cells = [cell(results[model, p], key, aims[i] if aims else None) for i, p in enumerate(PRECISIONS)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for model, name in ((TEXT, "L24 d256"), (LARGE, "L12 d512")):
        ratios = [f"{results[model, p]['step_ratio']:.3f}" for p in PRECISIONS]
        lines.append(f"| {name}, byte 1000 over byte 64 (at most {POSITIONS}) | {' | '.join(ratios)} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "targets.md").write_text(table)
    everything = [{"precision": precision, **result} for (_, precision), result in results.items()]
    (OUT / "targets.json").write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
