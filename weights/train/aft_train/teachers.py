"""What text models that are trained already say of a text, for another to learn from as well as from the text itself.

A text tells which byte came; what teachers say tells which else might have come, and a small text is so not learnt by
heart (Hinton, Vinyals and Dean 2015, arXiv:1503.02531).
"""
import os
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from . import quality
from .loop import write_aside
from .recipe import TrainError

SHARE = 0.5  # of what is learnt from each byte comes from the teachers


def load(folders):
    """{model directory: text generator}. Raises ValueError, naming the first that is none."""
    return {folder: quality.load_for(folder, "text-generation") for folder in folders}


def named(folders):
    """Model directories in words: a run's model is called as the run is."""
    paths = (Path(folder).absolute() for folder in folders)
    return " and ".join(path.parent.name if path.name == "model" else path.name for path in paths)


def crc32(model):
    """Of a model's weights, by which a run knows its teachers again."""
    crc = 0
    for _, tensor in sorted(model.state_dict().items()):
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy(), crc)
    return crc


def ask(models, data, words, device, dtype):
    """Add up in words, float16 [n, 256], the models' shares in the mean of their probabilities of a text's bytes."""
    for folder, model in models.items():
        model.to(device).eval()
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            for rows, lead, first in quality.windowed(model, data, model.config.context // 2):
                p = torch.softmax(quality.logits_of(model, rows, lead)[0].float(), 2) / len(models)
                if not torch.isfinite(p).all():
                    raise TrainError(f"{folder} gives no finite probability to a byte of the text")
                for at, row in zip(first, p.cpu().numpy().astype(np.float16), strict=True):
                    words[at : at + len(row)] += row


def said(path, models, data, device="cpu", dtype=None):
    """The mean of the models' probabilities of each byte of a text, uint8 [n] -> float16 [n, 256], mapped from a file.

    Each has seen half its context of what comes before a byte, or more. dtype: of autocast; None: float32. What a
    text's first byte may be is left at 0 where a model has no start embedding. The file, 512 bytes for each of the
    text, is written unless it is there: it is for its owner to know that it is of this text and these models. Raises
    TrainError where there is no room, or a model says nothing.
    """
    shape = (len(data), 256)
    size = 2 * len(data) * 256

    def write(file):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as e:
            raise TrainError(f"{file.name}: {e.strerror}: what teachers say of {len(data):,} bytes takes "
                             f"{size / 1e9:.1f} GB") from None
        ask(models, data, np.memmap(file.name, np.float16, "r+", shape=shape), device, dtype)

    if not path.exists():
        write_aside(path, write)
    return np.memmap(path, np.float16, "r", shape=shape)


def targets(bytes_, words):
    """What to learn of bytes, int64 [B, T], of which teachers say words, float16 [B, T, 256]: probabilities of each."""
    return torch.lerp(F.one_hot(bytes_, 256).float(), words.float(), SHARE)
