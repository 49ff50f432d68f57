#!/usr/bin/env python3
"""Write down what the reference implementation says of the models that the C tests run; again whenever those change.

    python3 tests/data/make_shipped_cases.py        from the project's root; needs numpy and Pillow

    tests/data/shipped.h                 texts and figures for the tests of the aft program
    tests/data/cifar/<class>.jpg         the first test picture of each class
    tests/data/cifar/oracle-10.txt       one line each: the file, then each class's probability in the labels' order
    tests/data/cifar/oracle-500.txt      the same for the first 50 test pictures of each class, which lie in
                                         pictures-500.tar.xz
"""
import io
import json
import lzma
import pathlib
import sys
import tarfile

import numpy as np
from PIL import Image

OUT = pathlib.Path("tests/data/cifar")
IMAGE_MODEL, TEXT_MODEL = "weights/models/cifar10-aft-conv", "tests/data/models/enwik8-aft-local"
PER_CLASS = 50
UNSEEN = 4_096  # bytes of enwik8 from 4,000,000 on: never trained on

sys.path.insert(0, "tests/oracle")
import oracle  # noqa: E402 - its path is set above


def line(name, model, jpeg):
    logits = model.image_logits(oracle.prepare(Image.open(io.BytesIO(jpeg)), model.cfg))
    return name + "".join(f" {p:.6f}" for p in oracle.softmax(np.asarray(logits), 0)) + "\n"


def top_five(model, path):
    """As `aft classify` prints them."""
    p = oracle.softmax(np.asarray(model.image_logits(oracle.prepare(Image.open(path), model.cfg))), 0)
    return "".join(f"{p[i]:.4f}\t{model.cfg['labels'][i]}\n" for i in np.argsort(-p)[:5])


def greedy(model, prompt, count):
    """The likeliest bytes after a prompt. Refuses text in which a rounding error might tip the balance."""
    text = prompt or b"\n"
    begin = len(text)
    for _ in range(count):
        z = model.lm_logits(np.frombuffer(text, np.uint8))[-1]
        second, first = np.argsort(z)[-2:]
        if z[first] - z[second] < 1e-3:
            sys.exit(f"after {text!r} two bytes are likeliest by {z[first] - z[second]:.2g}: choose another prompt")
        text += bytes([first])
    return text[begin:].decode("ascii")


def write_header():
    image, text = oracle.Model(IMAGE_MODEL), oracle.Model(TEXT_MODEL)
    with lzma.open("tests/data/enwik8-held-out.xz") as f:
        unseen = f.read(UNSEEN)
    fox = b"The quick brown fox jumps over the lazy dog. " * 14
    cat, gray = (top_five(image, f"tests/data/images/{name}.jpg") for name in ("small-32", "gray"))
    values = {
        **{f"{name}_{what}": value for name, lines in (("CAT", cat), ("GRAY", gray)) for what, value in (
            ("IS", lines), ("BEST", lines.split("\n")[0]), ("TWO", "\t".join(lines.split("\n")[:2])),
            ("LABEL", lines.split()[1]))},
        "HISTORY_GOES_ON": greedy(text, b"The history of ", 39),
        "NOTHING_GOES_ON": greedy(text, b"", 24),
        "FOX_BITS": text.bits_per_byte(fox[:630]),
        "ALL_VALUES_BITS": text.bits_per_byte(bytes(range(256)) * 2),
        "UNSEEN_BITS": text.bits_per_byte(unseen),
    }
    (OUT.parent / "shipped.h").write_text(
        "/* shipped.h - what the reference says of models; written by make_shipped_cases.py. */\n"
        "#ifndef TESTS_DATA_SHIPPED_H\n#define TESTS_DATA_SHIPPED_H\n\n"
        + "".join(f"#define SHIPPED_{k} {json.dumps(v) if isinstance(v, str) else format(v, '.6f')}\n"
                  for k, v in values.items())
        + "\n#endif\n")


def main():
    write_header()
    model = oracle.Model(IMAGE_MODEL)
    labels = model.cfg["labels"]
    wanted = {f"test/{label}/{i:04d}.jpg" for label in labels for i in range(PER_CLASS)}
    pictures = {}
    with tarfile.open(OUT / "pictures-500.tar.xz") as tar:
        for member in tar:
            if member.name in wanted:
                pictures[member.name] = tar.extractfile(member).read()
    if len(pictures) != len(wanted):
        sys.exit(f"{len(wanted)} pictures are wanted, {len(pictures)} were found")

    OUT.mkdir(exist_ok=True)
    ten = []
    for label in labels:
        jpeg = pictures[f"test/{label}/0000.jpg"]
        (OUT / f"{label}.jpg").write_bytes(jpeg)
        ten.append(line(f"{label}.jpg", model, jpeg))
    (OUT / "oracle-10.txt").write_text("".join(ten))
    (OUT / "oracle-500.txt").write_text("".join(line(name, model, pictures[name]) for name in sorted(pictures)))


if __name__ == "__main__":
    main()
