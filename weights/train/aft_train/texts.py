"""Labelled texts to learn from or to measure with: a folder of a folder of texts for each label, or a table of them."""
import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .corpus import BYTES_MAX, CorpusError
from .model_config import is_label

PAIR = b"\x1e"  # stands between two texts that are to be matched: ASCII's record separator, which texts hardly have
TABLES = {".csv": ",", ".tsv": "\t", ".jsonl": None}  # suffix -> what stands between columns
csv.field_size_limit(1 << 24)


@dataclass
class Texts:
    """Texts, uint8 [n >= 1] each, and the number of each one's class."""

    classes: list
    texts: list
    labels: list

    def __len__(self):
        return len(self.texts)

    def part(self, chosen):
        return Texts(self.classes, [self.texts[i] for i in chosen], [self.labels[i] for i in chosen])


def from_folder(path):
    """(label, text) of the files of a folder, at any depth below the folder of their label."""
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")):
        for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
            yield folder.name, np.frombuffer(file.read_bytes(), np.uint8)


def json_row(line):
    """A line's object; None where it is no JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def beginning(text, most):
    """The characters of UTF-8 that are whole within the first bytes."""
    while most < len(text) and text[most] & 0xC0 == 0x80:
        most -= 1
    return text[:most]


def from_table(path, columns, half):
    """(label, text) of the rows of a .csv, .tsv or .jsonl with columns of these names, one or two texts and the label.
    Of two, each has `half` bytes at most, and PAIR is between them; it prints how many were cut to that."""
    cut = 0
    with open(path, newline="", encoding="utf-8-sig") as f:
        between = TABLES[path.suffix]
        rows = csv.DictReader(f, delimiter=between) if between else (json_row(line) for line in f if line.strip())
        for number, row in enumerate(rows, 1):
            values = [row.get(column) if isinstance(row, dict) else None for column in columns]
            if not all(isinstance(value, (str, int)) for value in values):
                raise CorpusError(f"{path}: row {number} has not all of {', '.join(map(repr, columns))}")
            *texts, label = (str(value) for value in values)
            texts = [text.encode("utf-8", "surrogatepass") for text in texts]
            if len(texts) == 2:
                cut += max(map(len, texts)) > half
                texts = [PAIR.join(beginning(text, half) for text in texts)]
            yield label, np.frombuffer(texts[0], np.uint8)
    if cut:
        print(f"{path}: of {cut} pairs a text has more than {half} bytes: only so many are seen", file=sys.stderr)


def write_texts(path, rows):
    """(text, label) -> a .jsonl that read_texts and aft evaluate take."""
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in rows)


def read_texts(path, columns=("text", "label"), classes=None, half=None):
    """Texts of a folder or table. classes: those that there may be, in their order; None: what there is, sorted; half:
    of pairs, see from_table.

    Empty texts are left out. Raises CorpusError.
    """
    path, found, size = Path(path), [], 0
    if path.is_file() and path.suffix not in TABLES:
        raise CorpusError(f"{path} is no folder of folders of texts, expected one, or {', '.join(TABLES)}")
    if path.is_dir() and len(columns) == 3:
        raise CorpusError(f"{path} is a folder, expected a table with the columns {', '.join(columns)}")
    try:
        for label, text in from_folder(path) if path.is_dir() else from_table(path, columns, half):
            size += len(text)
            if size > BYTES_MAX:
                raise CorpusError(f"{path}: has more than {BYTES_MAX} bytes of text")
            if not is_label(label):
                raise CorpusError(f"{path}: {label!r:.80} is no label: expected at most 256 bytes of UTF-8 without NUL")
            if len(text):
                found.append((label, text))
    except (OSError, ValueError, csv.Error) as e:
        raise e if isinstance(e, CorpusError) else CorpusError(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    classes = classes or sorted({label for label, _ in found})
    number = {label: i for i, label in enumerate(classes)}
    unknown = next((label for label, _ in found if label not in number), None)
    if unknown is not None:
        raise CorpusError(f"{path} has the label {unknown}, expected one of {', '.join(classes[:5])}, ...")
    if not found:
        raise CorpusError(f"{path}: has no texts with labels")
    return Texts(list(classes), [text for _, text in found], [number[label] for label, _ in found])


def padded(texts):
    """uint8 arrays -> (uint8 [B, T], the longest's T; their lengths [B])"""
    lengths = torch.tensor([len(text) for text in texts])
    x = torch.zeros(len(texts), int(lengths.max()), dtype=torch.uint8)
    for row, text in zip(x, texts):
        row[: len(text)] = torch.from_numpy(np.array(text))
    return x, lengths


def even_order(labels, rng):
    """Numbers of as many texts as there are, in a random order, of which each label has as good as the same share: of
    a label with few texts each comes several times, of one with many not all do."""
    labels = np.asarray(labels)
    classes = np.unique(labels)
    share = -(-len(labels) // len(classes))
    drawn = []
    for number in classes:
        own = np.flatnonzero(labels == number)
        drawn += [rng.permutation(own) for _ in range(share // len(own))] + [rng.permutation(own)[: share % len(own)]]
    return rng.permutation(np.concatenate(drawn))[: len(labels)]


def epoch_batches(lengths, batch, rng, order=None, pool=50):
    """Numbers of an epoch's texts, [batch] each, of about one length: sorted within `pool` batches of their order, by
    default a shuffle."""
    order = rng.permutation(len(lengths)) if order is None else order
    order = order[: len(order) // batch * batch].copy()  # any may be left out
    lengths = np.asarray(lengths)
    for i in range(0, len(order), pool * batch):
        part = order[i : i + pool * batch]
        order[i : i + pool * batch] = part[np.argsort(lengths[part], kind="stable")]
    whole = order.reshape(-1, batch)
    return whole[rng.permutation(len(whole))]


def warn_of_long(texts, context, prog):
    cut = sum(len(text) > context for text in texts.texts)
    if cut:
        print(f"{prog}: {cut} of {len(texts)} texts have more than {context} bytes: only so many of each are seen",
              file=sys.stderr)
