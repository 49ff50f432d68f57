#!/usr/bin/env python3
"""Do all builds give the same logits? Builds logits.c with gcc and with clang, each as release and for debugging, runs
it on every instruction set that this machine has, over the golden models and those that ship, and compares.

For each instruction set and precision the table says in how many models the logits have the same bits as those of the
first build with one thread, and where they have not, the largest difference, as a part of the largest logit. Ends
non-zero if one is beyond what another order of adding up explains (LIMIT), or if the number of threads changes a bit.
The standard library alone."""
import array
import glob
import os
import subprocess
import sys

BUILDS = [("gcc release", "build", "release", "gcc"), ("gcc debug", "build/debug", "debug", "gcc"),
          ("clang release", "build/clang", "release", "clang-14"),
          ("clang debug", "build/clang-debug", "debug", "clang-14")]
LIMIT = {"f32": 1e-4, "bf16": 0.05, "int8": 0.1}  # of roundings that fall otherwise


def build(folder, variant, compiler):
    program = folder + "/tests/torture/logits"
    compiler = os.environ.get("CC_PREFIX", "") + " " + compiler
    subprocess.run(["make", "--no-print-directory", f"-j{os.cpu_count()}", "B=" + folder, "VARIANT=" + variant,
                    "CC=" + compiler.strip(), program], check=True, stdout=subprocess.DEVNULL)
    return program


def instruction_sets():
    text = subprocess.run(["build/aftd", "--version"], check=True, capture_output=True, text=True).stdout
    line = next(line for line in text.splitlines() if line.startswith("instruction set"))
    return line.split(" of ")[1].replace(" ", "").split(",")


def logits(program, isa, models):
    """{(model, precision): {threads: array}}"""
    out = program + ".out"
    done = subprocess.run([program, isa, out, *models], check=True, capture_output=True, text=True)
    every = array.array("f")
    with open(out, "rb") as f:
        every.frombytes(f.read())
    os.remove(out)
    found = {}
    for line in done.stdout.splitlines():
        model, precision, begin, count = line.split()
        precision, threads = precision.split("/")
        found.setdefault((model, precision), {})[threads] = every[int(begin):int(begin) + int(count)]
    return found


def difference(a, b):
    largest = max(1.0, max(map(abs, a)))
    return max(abs(x - y) for x, y in zip(a, b)) / largest


def main():
    models = sorted(os.path.dirname(p) for p in glob.glob("tests/data/golden/*/config.json") +
                    glob.glob("weights/models/*/config.json"))
    programs = [(name, build(folder, variant, compiler)) for name, folder, variant, compiler in BUILDS]
    subprocess.run(["make", "--no-print-directory", "programs"], check=True, stdout=subprocess.DEVNULL)
    fine = True
    print(f"{len(models)} models: how many of them have the same bits as built by {BUILDS[0][0]}\n")
    print("| instruction set | precision |" + "".join(f" {name} |" for name, *_ in BUILDS))
    print("| --- " * (2 + len(BUILDS)) + "|")
    for isa in instruction_sets():
        every = {name: logits(program, isa, models) for name, program in programs}
        first = every[BUILDS[0][0]]
        for precision in LIMIT:
            keys = [k for k in first if k[1] == precision]
            row = f"| {isa} | {precision} |"
            for name, found in every.items():
                same = sum(first[k]["1"].tobytes() == found[k]["1"].tobytes() for k in keys)
                worst, model = max((difference(first[k]["1"], found[k]["1"]), k[0]) for k in keys)
                row += f" {same}" + (f", {worst:.1g} in {os.path.basename(model)} |" if worst else " |")
                threads = [k[0] for k in keys if found[k]["1"].tobytes() != found[k]["3"].tobytes()]
                if threads:
                    print(f"threads change bits, {name}, {isa}, {precision}: {' '.join(threads)}")
                fine = fine and not threads and worst <= LIMIT[precision]
            print(row, flush=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
