"""How good a model is on data: bits per byte of text, accuracy on pictures, bits per dimension of their sub-pixels."""
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from .corpus import CHUNK, read_bytes
from .export import ModelError, load, model_input
from .pictures import read_pictures
from .texts import padded, read_texts

BATCH_BYTES = 8192  # bytes or sub-pixels that run at a time: 8 MiB of logits
BATCH_PICTURES, BATCH_TEXTS = 64, 32
BINS = 15  # as aft evaluate has them
CALIBRATED_LEAST, TEMPERATURE_MOST = 500, 8.0  # samples that tell a temperature; it, and its inverse


@dataclass
class Figure:
    """A model's quality: the number, its unit, what it was measured on, and how many decimals mean something."""

    value: float
    unit: str
    on: str
    digits: int = 4

    def __str__(self):
        return f"{self.value:.{self.digits}f} {self.unit}"


# ---- sequences -------------------------------------------------------------------------------------------------------


def windows(size, first, context, warm, start):
    """Cut elements first..size-1 of a sequence, the ones to score, into windows that a model sees from scratch.

    Every scored element has at least `warm` elements before it in its window, save where the sequence has fewer.
    start: whether the model has a start embedding, and so scores a window's first element; without one, a window
    begins with one element more. Yields (begin, target, end): a window of elements begin..end-1 scores target..end-1.
    """
    lead = warm if start else max(1, warm)
    most = context - warm if start else context + 1 - lead  # the last element of a window is not fed without start
    for target in range(first, size, most):
        yield max(0, target - lead), target, min(size, target + most)


@torch.inference_mode()
def logits_of(model, rows, lead):
    """(logits, elements [B, n - lead]) of a generator for the elements of rows, uint8 [B, n], from number `lead` on."""
    start = hasattr(model, "start_embed")
    rows = torch.from_numpy(rows)
    logits = model(model_input(model, rows if start else rows[:, :-1]))[:, lead if start else lead - 1 :]
    return logits, rows[:, lead:].to(logits.device).long()


def bits_of(model, rows, lead):
    """Bits that a generator needs for the elements of rows, uint8 [B, n], from the one numbered `lead` on."""
    logits, want = logits_of(model, rows, lead)
    bits = F.cross_entropy(logits.flatten(0, 1).double(), want.flatten(), reduction="sum").item() / math.log(2)
    if not math.isfinite(bits):
        raise ModelError("the model gives no finite probability to an element of the data")
    return bits


def windowed(model, data, warm=0, before=0):
    """Cut a text, uint8 [n], for a text generator into windows of `context` bytes each from scratch, some at a time.

    Without a start embedding the first byte is not scored and each window begins with the last byte of the one before.
    warm: bytes that each scored byte has before it in its window at least; before: of data, how many bytes are such
    context only. Yields (rows uint8 [B, length], lead, first [B]): a row's bytes from number `lead` on are to be scored
    and are those of the text from number `first` on.
    """
    start, context = hasattr(model, "start_embed"), model.config.context
    if warm >= context:
        raise ModelError(f"a warm context of {warm} bytes, expected fewer than the model's context, {context}")
    first = before + (not start)
    if len(data) <= first:
        raise ModelError(f"{len(data) - before} bytes to score, expected {1 if start else 2} or more")
    shape = lambda w: (w[2] - w[0], w[1] - w[0])  # (length, lead): windows of one shape run together
    most = max(1, BATCH_BYTES // context)
    with tqdm(total=len(data) - first, unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for (length, lead), group in itertools.groupby(windows(len(data), first, context, warm, start), shape):
            begins = [begin for begin, _, _ in group]
            for i in range(0, len(begins), most):
                rows = np.stack([data[begin : begin + length] for begin in begins[i : i + most]])
                yield rows, lead, [begin + lead for begin in begins[i : i + most]]
                bar.update(len(rows) * (length - lead))


def bits_per_byte(model, data, warm=0, before=0):
    """Mean -log2 p of a text's bytes under a text generator, in windows as windowed() cuts them."""
    bits = [(bits_of(model, rows, lead), rows[:, lead:].size) for rows, lead, _ in windowed(model, data, warm, before)]
    return sum(b for b, _ in bits) / sum(n for _, n in bits)


def bits_of_frequencies(learnt, data):
    """Mean -log2 p of bytes that are told by how often each occurs in what was learnt, each at least once."""
    counts = np.ones(256, np.int64)
    for at in range(0, len(learnt), CHUNK):  # bincount makes eight bytes of each
        counts += np.bincount(learnt[at : at + CHUNK], minlength=256)
    return float(-np.log2(counts / counts.sum())[data].mean())


# ---- pictures --------------------------------------------------------------------------------------------------------


def spread(count, limit):
    """Which of `count` pictures, sorted by class, to look at when only `limit` (0: all) shall be."""
    return range(count) if not limit or limit >= count else [i * count // limit for i in range(limit)]


def batches(pictures, config, limit):
    """Prepared pictures, uint8 [B, H, W, 3], and the class numbers of their folders."""
    chosen = spread(len(pictures), limit)
    for i in tqdm(range(0, len(chosen), BATCH_PICTURES), unit="batch", disable=None, leave=False):
        part = chosen[i : i + BATCH_PICTURES]
        yield np.stack([pictures.prepared(k, config) for k in part]), [pictures.labels[k] for k in part]


def class_numbers(classes, labels):
    """The model's class of each class folder: by name, or in order where no folder has a label's name. ModelError."""
    unknown = [name for name in classes if name not in labels]
    if len(unknown) == len(classes) == len(labels):
        return list(range(len(labels)))
    if unknown:
        raise ModelError(f"the class folder {unknown[0]} is none of the model's {len(labels)} labels, expected "
                         "folders named by labels, or as many as there are labels and in their order")
    return [labels.index(name) for name in classes]


@torch.inference_mode()
def picture_logits(model, pictures, limit=0):
    """(logits [N, classes], class numbers [N]) of pictures, prepared as the served model does, and of their folders."""
    numbers = class_numbers(pictures.classes, model.config.labels)
    made = [(model(model_input(model, x)).double().cpu(), torch.tensor([numbers[f] for f in folders]))
            for x, folders in batches(pictures, model.config, limit)]
    return tuple(map(torch.cat, zip(*made)))


@torch.inference_mode()
def text_logits(model, texts):
    """(logits [N, classes], class numbers [N]) of Texts; of those that are too long the beginning is seen."""
    most, made = model.config.context - hasattr(model, "cls_token"), []
    order = sorted(range(len(texts)), key=lambda i: len(texts.texts[i]))
    for i in range(0, len(order), BATCH_TEXTS):
        part = order[i : i + BATCH_TEXTS]
        x, lengths = (t.to(model.head.weight.device) for t in padded([texts.texts[k][:most] for k in part]))
        made.append((model(x, lengths).double().cpu(), torch.tensor([texts.labels[k] for k in part])))
    return tuple(map(torch.cat, zip(*made)))


def percent_right(logits, want):
    """Percentage of samples whose likeliest class is their own."""
    return 100 * (logits.argmax(1) == want).double().mean().item()


def percent_off(logits, want):
    """By how much the likeliest class's probability is off: the expected calibration error, in %, over BINS equal parts
    of 0..1 (Guo et al. 2017, eq. 3)."""
    likeliest, chosen = torch.softmax(logits, 1).max(1)
    bins = (likeliest * BINS).long().clamp(max=BINS - 1)
    error = torch.zeros(BINS, dtype=logits.dtype).index_add(0, bins, likeliest - (chosen == want).double())
    return 100 * error.abs().sum().item() / len(want)


def temperature(logits, want):
    """What to divide logits by so that probabilities are what they say: the least cross-entropy (Guo et al. 2017, 4.2).
    1 where there are too few samples to tell, or none is wrong: nothing could be too sure then."""
    low, high = 1 / TEMPERATURE_MOST, TEMPERATURE_MOST  # of its inverse, in which the cross-entropy is convex
    if len(want) < CALIBRATED_LEAST or (logits.argmax(1) == want).all():
        return 1.0
    while high - low > 1e-4:
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if F.cross_entropy(logits * a, want) < F.cross_entropy(logits * b, want):
            high = b
        else:
            low = a
    return 2 / (low + high)


def accuracy(model, pictures, limit=0):
    """Percentage of pictures whose likeliest class is that of their folder."""
    return percent_right(*picture_logits(model, pictures, limit))


def text_accuracy(model, texts):
    """Percentage of Texts whose likeliest class is their own."""
    return percent_right(*text_logits(model, texts))


def load_for(model_dir, task):
    """The Model of a directory, which must be for a task. Raises ModelError."""
    model = load(model_dir)
    if model.config.task != task:
        raise ModelError(f"{model_dir} is for {model.config.task}, expected a model for {task}")
    return model


def interval(percent, count):
    """Within which the percentage lies with 95 % confidence that `count` samples estimate: Wilson's interval
    (E. B. Wilson, 1927), which is honest about few samples and near 0 and 100 too."""
    p, z2 = percent / 100, 1.96 ** 2
    middle, width = p + z2 / (2 * count), (z2 * (p * (1 - p) + z2 / (4 * count)) / count) ** 0.5
    return tuple(100 * (middle + sign * width) / (1 + z2 / count) for sign in (-1, 1))


def rated(right, count):
    """A percentage of so many, in words."""
    low, high = interval(right, count)
    return f"{right:.2f} % right (95 % interval {low:.1f} to {high:.1f})"


def classifier_figures(on, logits, want):
    """What there is to tell of a classifier on some samples: (measured on, figure) for its card."""
    yield on, rated(percent_right(logits, want), len(want))
    yield f"{on}, expected calibration error", f"{percent_off(logits, want):.2f} %"


def accuracy_of_commonest(learnt, pictures):
    """Percentage of pictures whose label is the commonest of those learnt: what always naming that one achieves."""
    label = np.bincount(learnt.labels).argmax()
    return 100 * float((np.array(pictures.labels) == label).mean())


def bits_per_element(model, rows):
    """Mean -log2 p of the elements of sequences, uint8 [N, T]; without a start embedding the first is not scored."""
    lead = 0 if hasattr(model, "start_embed") else 1
    most = max(1, BATCH_BYTES // rows.shape[1])
    bits = sum(bits_of(model, rows[i : i + most], lead) for i in range(0, len(rows), most))
    return bits / (len(rows) * (rows.shape[1] - lead))


def bits_per_dim(model, pictures, limit=0):
    """Mean -log2 p of the sub-pixels of pictures brought to the model's size, row by row, R G B interleaved."""
    bits = count = 0
    for x, _ in batches(pictures, model.config, limit):
        bits += bits_per_element(model, x.reshape(len(x), -1)) * len(x)
        count += len(x)
    return bits / count


# ---- whatever the task -----------------------------------------------------------------------------------------------


@dataclass
class Text:
    """A slice of a file: bytes [n], of which the first `before` are context for the others only."""

    data: np.ndarray
    before: int


def read_data(config, path, start=0, length=0, warm=0, part=None):
    """What a model's quality is measured on: Text of a file's bytes start..start+length-1, Texts or Pictures.
    ValueError."""
    if config.task == "text-classification":
        return read_texts(path, classes=config.labels)
    if config.task != "text-generation":
        return read_pictures(path, part=part)
    data = read_bytes(path)
    if start >= len(data):
        raise ModelError(f"--start {start} is behind the {len(data)} bytes of {path}")
    end = min(len(data), start + length) if length else len(data)
    before = min(start, warm)
    return Text(data[start - before : end], before)


def measure_text(model, text, warm, limit):
    n = len(text.data) - text.before
    how = f"after {warm} bytes of context or more" if warm else "each from scratch"
    return Figure(bits_per_byte(model, text.data, warm, text.before), "bits per byte",
                  f"{n} bytes in windows of {model.config.context}, {how}")


def measure_classes(model, pictures, warm, limit):
    return Figure(accuracy(model, pictures, limit), "% right", f"{len(spread(len(pictures), limit))} pictures", 2)


def measure_texts(model, texts, warm, limit):
    few = texts.part(spread(len(texts), limit))
    return Figure(text_accuracy(model, few), "% right", f"{len(few)} texts", 2)


def measure_pixels(model, pictures, warm, limit):
    return Figure(bits_per_dim(model, pictures, limit), "bits per dim", f"{len(spread(len(pictures), limit))} pictures")


FIGURES = {"text-generation": measure_text, "image-classification": measure_classes,
           "text-classification": measure_texts, "image-generation": measure_pixels}


def measure(model, data, warm=0, limit=0):
    """A loaded model and read_data's result -> Figure. warm: see bits_per_byte; limit: pictures to look at, 0 all."""
    return FIGURES[model.config.task](model, data, warm, limit)
