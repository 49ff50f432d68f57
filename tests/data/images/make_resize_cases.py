"""Write resize_cases.inc: what Pillow makes of pictures that both sides compute, as CRC-32 of the cropped bytes.

    python3 make_resize_cases.py > resize_cases.inc

Needs Pillow 13 or newer: earlier ones begin with the rows of every picture, and the last bits of pictures that lose
more than twice as much height as width differ (those whose name says "tall").
"""
import zlib

import PIL
from PIL import Image

BICUBIC, BILINEAR = (Image.BICUBIC, "INTERPOLATION_BICUBIC"), (Image.BILINEAR, "INTERPOLATION_BILINEAR")

# name, width, height, resize_to, crop width, crop height, filter
CASES = [
    ("a photograph's shape, reduced", 320, 240, 64, 56, 56, BICUBIC),
    ("the same with triangles", 320, 240, 64, 56, 56, BILINEAR),
    ("upright, reduced by a fraction", 97, 131, 64, 64, 64, BICUBIC),
    ("square, reduced to one pixel", 200, 200, 1, 1, 1, BICUBIC),
    ("square, enlarged", 32, 32, 256, 224, 224, BICUBIC),
    ("square, enlarged with triangles", 32, 32, 256, 224, 224, BILINEAR),
    ("lying, enlarged by a fraction", 131, 97, 101, 96, 96, BICUBIC),
    ("one pixel more", 63, 64, 64, 60, 60, BICUBIC),
    ("one pixel fewer", 65, 66, 64, 60, 60, BILINEAR),
    ("the right size already", 80, 64, 64, 64, 64, BICUBIC),
    ("the right size already, crop by odd offsets", 81, 64, 64, 50, 61, BICUBIC),
    ("tall, reduced: columns first", 60, 300, 20, 16, 16, BICUBIC),
    ("tall, reduced, triangles: columns first", 60, 300, 20, 16, 48, BILINEAR),
    ("twice as tall as wide: rows first", 100, 200, 50, 48, 48, BICUBIC),
    ("tall, just over twice the width: columns first", 100, 203, 50, 48, 48, BICUBIC),
    ("tall, enlarged: rows first", 20, 100, 60, 50, 50, BICUBIC),
    ("wide, reduced", 300, 60, 20, 16, 16, BICUBIC),
    ("one pixel wide", 1, 700, 16, 16, 16, BICUBIC),
    ("one pixel high", 700, 1, 16, 16, 16, BICUBIC),
    ("one pixel wide, triangles", 1, 700, 16, 12, 20, BILINEAR),
    ("a single pixel", 1, 1, 40, 33, 33, BICUBIC),
    ("crop wider than the picture", 50, 40, 20, 41, 20, BICUBIC),
    ("crop higher than the picture", 50, 40, 20, 20, 43, BILINEAR),
    ("crop larger than the picture", 40, 50, 21, 64, 64, BICUBIC),
    ("crop larger, not resized", 30, 21, 21, 33, 24, BICUBIC),
    ("crop larger than a tall one, reduced", 30, 100, 10, 21, 64, BICUBIC),
    ("longer side truncated", 33, 50, 16, 16, 24, BICUBIC),
    ("many taps", 1000, 600, 7, 7, 7, BICUBIC),
]


def noise(count, seed):
    """The high bytes of a linear congruential generator."""
    out = bytearray(count)
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = seed >> 24
    return bytes(out)


def prepare(image, resize_to, width, height, how):
    w, h = image.size
    if min(w, h) != resize_to:
        if w <= h:
            w, h = resize_to, max(1, int(resize_to * h / w))
        else:
            w, h = max(1, int(resize_to * w / h)), resize_to
        image = image.resize((w, h), how)
    left, top = int(round((w - width) / 2.0)), int(round((h - height) / 2.0))
    return image.crop((left, top, left + width, top + height))


if int(PIL.__version__.split(".")[0]) < 13:
    raise SystemExit("Pillow is " + PIL.__version__ + ", expected 13 or newer")
print("/* Written by make_resize_cases.py with Pillow " + PIL.__version__ + ". */")
for seed, (name, w, h, resize_to, width, height, (how, constant)) in enumerate(CASES, 1):
    picture = Image.frombytes("RGB", (w, h), noise(w * h * 3, seed))
    crc = zlib.crc32(prepare(picture, resize_to, width, height, how).tobytes())
    print(f'{{"{name}", {w}, {h}, {resize_to}, {width}, {height}, {constant}, {seed}, 0x{crc:08x}}},')
