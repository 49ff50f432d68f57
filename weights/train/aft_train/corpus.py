"""Text to learn from or to measure with: any file as bytes, and slices of one."""
import contextlib
import gzip
import lzma
import tempfile
import zlib
from pathlib import Path

import numpy as np

BYTES_MAX = 8 << 30  # of a text, kept in memory
CHUNK = 1 << 24  # that is read at a time: the size of what is packed is not known before


class CorpusError(ValueError):
    """A text that cannot be used; the text of the error names the file or the slice and what was expected."""


def read_bytes(path):
    """The bytes of a file as a uint8 array; .xz and .gz are unpacked. Raises CorpusError."""
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(Path(path).suffix, open)
    data = bytearray()
    try:
        with opener(path, "rb") as f:
            while chunk := f.read(CHUNK):
                data += chunk
                if len(data) > BYTES_MAX:
                    raise CorpusError(f"{path}: has more than {BYTES_MAX} bytes")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as e:
        raise CorpusError(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    return np.frombuffer(data, np.uint8)


@contextlib.contextmanager
def new_folder(folder):
    """A folder to fill, which then appears whole. Raises ValueError, OSError, and what the filling raises."""
    if folder.exists():
        raise ValueError("exists, expected a new name")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".aft-train-") as aside:
        made = Path(aside, folder.name)
        made.mkdir()
        yield made
        made.rename(folder)


def span(text, size, name, least):
    """'FIRST:LAST', as Python slices are written, of a file of `size` bytes -> slice. Raises CorpusError."""
    try:
        first, last = (int(x) if x else None for x in text.split(":"))
    except ValueError:
        raise CorpusError(f"--{name} is {text!r}, expected FIRST:LAST in bytes") from None
    part = slice(*slice(first, last).indices(size)[:2])
    if part.stop - part.start < least:
        raise CorpusError(f"--{name} {text} is {max(0, part.stop - part.start)} of the file's {size} bytes, "
                          f"expected {least} or more")
    return part
