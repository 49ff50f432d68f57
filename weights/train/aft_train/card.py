"""A model's README.md: what a model is, what it was trained on, by which command and where, and how good it is."""
import json
import os
import platform
import re
import shlex
from pathlib import Path

import torch

from .model_config import HEADED_MIXERS


def processor():
    """The processor's name and how many of it this process may use."""
    try:
        name = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M).group(1)
    except (OSError, AttributeError):
        name = platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} processors"


def machine():
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    return f"{where}; PyTorch {torch.__version__}"


def duration(seconds):
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"


def mixer(m):
    """A MixerConfig in words."""
    words = [m.type]
    if m.type in HEADED_MIXERS:
        words.append(f"{m.heads} heads")
    if m.type == "aft-local":
        words.append(f"window {m.window}")
    if m.type == "aft-conv":
        words.append(f"kernel {' x '.join(map(str, m.kernel))}")
    if m.type == "sima" and m.norm != "l1":
        words.append(f"norm {m.norm}")
    words += [text for text, so in (("no query gate", not m.query_gate), ("no global sum", not m.global_sum),
                                    ("unscaled", not m.scale), ("the query as value", m.share_value_query)) if so]
    return ", ".join(words)


def shape(model):
    """A Model in words."""
    c = model.config
    size = (f"{c.size[0]} x {c.size[1]} pixels in patches of {c.patch[0]} x {c.patch[1]}, {len(c.labels)} classes"
            if c.grid else f"context {c.context}")
    size += f", pooled by {c.pooling}" if not c.causal and c.pooling != "mean" else ""
    return (f"{c.task} with {mixer(c.mixer)}; {c.depth} blocks of dim {c.dim}; {size}; "
            f"{model.parameter_count():,} parameters")


def schedule(recipe):
    """How the learning rate goes, in words."""
    rise = f"{recipe.warmup} steps"
    if recipe.minutes:
        rise = f"over the first {recipe.warmup / recipe.steps:.0%} of the time"
    line = f"falling to 0 over the last {recipe.decay:.0%}" if recipe.decay else "then constant"
    fall = {"line": line, "cosine": "then half a cosine", "root": "then as 1 / sqrt(step)"}[recipe.schedule]
    return f"learning rate {recipe.lr:g} (warm-up {rise}, {fall})"


def stopped(recipe, done):
    """What there is to tell of a run that was stopped before its end: nothing of others."""
    return f" It was stopped there, at {done:.0%} of {duration(60 * recipe.minutes)}." if done < 1 else ""


PIPELINES = {"image-generation": "unconditional-image-generation"}  # where the hub has another word for a task
METRICS = {"% right": "accuracy", "bits per byte": "bits_per_byte", "bits per dim": "bits_per_dim"}


def head(name, model, license, figures):
    """What readers of Hugging Face's cards look for, as YAML, whose scalars and lists may be written as JSON."""
    task = PIPELINES.get(model.config.task, model.config.task)
    rows = [(on, figure.split(" ", 1)) for on, figure in figures if not on.startswith("baseline")]
    metrics = [{"name": on, "type": kind, "value": float(value)} for on, (value, unit) in rows
               for known, kind in METRICS.items() if unit.startswith(known)]
    results = [{"task": {"type": task}, "dataset": {"name": "as the metrics say", "type": "own"}, "metrics": metrics}]
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in (
        ("license", license), ("library_name", "aftd"), ("pipeline_tag", task),
        ("tags", ["attention-free-transformer", model.config.mixer.type]),
        ("model-index", [{"name": name, "results": results}])))


def text(name, model, recipe, *, data, command, steps, done, seconds, figures, license="unknown"):
    """The card. data: what was learnt, in words; command: the argument list; figures: [(measured on, figure)].

    steps, seconds: how long it was trained; done: which share that is of what was planned.
    """
    kind = {"text-generation": "windows", "text-classification": "texts"}.get(model.config.task, "pictures")
    average = f", weights averaged at {recipe.ema:g}" if recipe.ema else ""
    where = f"{duration(seconds)} on: {machine()}.{stopped(recipe, done)}"
    rows = "\n".join(f"| {on} | {figure} |" for on, figure in figures)
    return f"""---
{head(name, model, license, figures)}---

# {name}

{shape(model)}.

## Data

{data}

## Training

    {shlex.join(command)}

{steps} steps of {recipe.batch} {kind}, {recipe.optimizer}, {schedule(recipe)},
weight decay {recipe.weight_decay:g}, seed {recipe.seed}{average}. It took {where}

![training loss and held-out quality over the steps](curves.png)

## Quality

| measured on | figure |
| --- | --- |
{rows}
"""
