#!/usr/bin/env python3
"""Write tests/data/cifar: ten CIFAR-10 test pictures and what the reference implementation says of them and of 500.

    python3 tests/data/make_cifar_cases.py          from the project's root; needs numpy, Pillow and ../shared

    <class>.jpg      the first test picture of each class
    oracle-10.txt    one line each: the file, then the probability of each class in the order of the model's labels
    oracle-500.txt   the same for the first 50 test pictures of each class, named as in the archive, which is not copied
"""
import io
import pathlib
import sys
import tarfile

import numpy as np
from PIL import Image

SHARED = pathlib.Path("../shared")
OUT = pathlib.Path("tests/data/cifar")
MODEL = "weights/models/cifar10-aft-conv"
PER_CLASS = 50

sys.path.insert(0, str(SHARED / "oracle"))
import oracle  # noqa: E402


def line(name, model, jpeg):
    logits = model.image_logits(oracle.prepare(Image.open(io.BytesIO(jpeg)), model.cfg))
    return name + "".join(f" {p:.6f}" for p in oracle.softmax(np.asarray(logits), 0)) + "\n"


def main():
    model = oracle.Model(MODEL)
    labels = model.cfg["labels"]
    wanted = {f"test/{label}/{i:04d}.jpg" for label in labels for i in range(PER_CLASS)}
    pictures = {}
    with tarfile.open(SHARED / "data/cifar10-jpeg.tar.xz") as tar:
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
