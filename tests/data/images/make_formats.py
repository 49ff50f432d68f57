"""Write formats/: small PNGs and WebPs of every form that is read, and formats.inc, what Pillow makes of each: its
upright size and the CRC-32 of its pixels, RGB, what is transparent laid on white.

    python3 make_formats.py

Needs Pillow with WebP, and NumPy. PNGs are written here, so that every depth and interlacing is there.
"""
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

W, H = 37, 23
HERE = Path(__file__).parent
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
EXIF = struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x112, 3, 1, 6, 0, 0)  # turn clockwise


def samples(kind, depth):
    y, x = np.mgrid[0:H, 0:W]
    top = (1 << depth) - 1
    planes = [
        (x * top) // (W - 1),
        (y * top) // (H - 1),
        ((x * 7 + y * 13) * 257) % (top + 1),
        (x + y) * top // (W + H - 2),
    ]
    if kind in (GRAY_ALPHA,):
        planes = [planes[0], planes[3]]
    return np.stack(planes[:CHANNELS[kind]], axis=-1).astype(np.uint32)


def rows(values, depth):
    """Scanlines without a filter."""
    out = bytearray()
    for line in values.reshape(values.shape[0], -1):
        bits = ((line[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
        out += b"\0" + np.packbits(bits.reshape(-1)).tobytes()
    return bytes(out)


def png(kind, depth, interlaced=False, before=(), after=()):
    values = samples(kind, depth)
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    if interlaced:
        data = b"".join(rows(values[y::dy, x::dx], depth) for x, y, dx, dy in ADAM7 if x < W and y < H)
    else:
        data = rows(values, depth)
    header = struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, int(interlaced))
    if kind == PALETTE:
        colours = bytes(v for i in range(1 << depth) for v in ((i * 37) % 256, (i * 91) % 256, 255 - i % 256))
        before = [(b"PLTE", colours), *before]
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*c) for c in before) + chunk(
        b"IDAT", zlib.compress(data, 9)) + b"".join(chunk(*c) for c in after) + chunk(b"IEND", b"")


def webp(mode, **options):
    from io import BytesIO
    values = samples(RGBA if mode == "RGBA" else RGB, 8).astype(np.uint8)
    out = BytesIO()
    Image.fromarray(values).save(out, "WEBP", **options)
    return out.getvalue()


def expected(data, path):
    """Pillow's pixels; of 16 bits its upper 8, which Pillow itself takes of colours but not of gray."""
    path.write_bytes(data)
    image = Image.open(path)
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image, np.uint32) >> 8).astype(np.uint8)).convert("RGB")
    image = ImageOps.exif_transpose(image).convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image)
    return white


def main():
    files = {f"{name}-{depth}.png": png(kind, depth) for name, kind, depths in [
        ("gray", GRAY, (1, 2, 4, 8, 16)), ("rgb", RGB, (8, 16)), ("palette", PALETTE, (1, 2, 4, 8)),
        ("gray-alpha", GRAY_ALPHA, (8, 16)), ("rgba", RGBA, (8, 16))] for depth in depths}
    files |= {
        "interlaced-gray-2.png": png(GRAY, 2, True), "interlaced-rgb-8.png": png(RGB, 8, True),
        "interlaced-rgba-8.png": png(RGBA, 8, True), "interlaced-palette-4.png": png(PALETTE, 4, True),
        "transparent-palette.png": png(PALETTE, 4, before=[(b"tRNS", bytes(range(0, 160, 16)))]),
        "transparent-gray.png": png(GRAY, 8, before=[(b"tRNS", struct.pack(">H", samples(GRAY, 8)[0, 9, 0]))]),
        "transparent-colour.png": png(RGB, 8, before=[(b"tRNS", struct.pack(">HHH", *samples(RGB, 8)[3, 4]))]),
        "gamma.png": png(RGB, 8, before=[(b"gAMA", struct.pack(">I", 100000))]),
        "text.png": png(RGB, 8, before=[(b"zTXt", b"Comment\0\0" + zlib.compress(b" " * 900000, 9))]),
        "turned.png": png(RGB, 8, before=[(b"eXIf", EXIF)]),
        "turned-rgba.png": png(RGBA, 8, before=[(b"eXIf", EXIF)]),
        "turned-late.png": png(RGB, 8, after=[(b"eXIf", EXIF)]),
        "lossless.webp": webp("RGB", lossless=True), "lossless-alpha.webp": webp("RGBA", lossless=True, exact=True),
        "lossy.webp": webp("RGB", quality=80), "lossy-alpha.webp": webp("RGBA", quality=80),
        "turned.webp": webp("RGB", lossless=True, exif=EXIF), "turned-alpha.webp": webp("RGBA", quality=90, exif=EXIF),
    }
    lines = []
    (HERE / "formats").mkdir(exist_ok=True)
    for name, data in files.items():
        image = expected(data, HERE / "formats" / name)
        lines.append(f'{{"{name}", {image.width}, {image.height}, 0x{zlib.crc32(image.tobytes()):08x}}},\n')
    (HERE / "formats.inc").write_text("/* Written by make_formats.py. */\n" + "".join(lines))


if __name__ == "__main__":
    main()
