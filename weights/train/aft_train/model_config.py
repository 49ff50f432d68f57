"""config.json of a model directory: parse, check, write. The Python twin of weights/model_config.c."""
import dataclasses
import json
import sys
from dataclasses import dataclass, field

FORMAT, VERSION = "aftd-model", 1

TASKS = {  # task -> the kind of input it reads
    "image-classification": "image",
    "text-generation": "bytes",
    "text-classification": "bytes",
    "image-generation": "pixels",
}
CAUSAL_TASKS = ("text-generation", "image-generation")
MIXERS = ("aft-full", "aft-local", "aft-simple", "aft-conv", "attention", "sima", "simple-attention", "fastformer")
HEADED_MIXERS = ("aft-conv", "attention", "sima", "simple-attention", "fastformer")
CAUSAL_MIXERS = ("aft-full", "aft-local", "aft-simple", "aft-conv", "attention")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POOLINGS = ("mean", "class-token", "attention")
NORMS = ("l1", "l2", "none")

# What the daemon loads: config/limits.h has the reason of each.
DIM_MAX, DEPTH_MAX, HIDDEN_MAX, CONTEXT_MAX, CLASSES_MAX = 8192, 256, 65536, 65536, 65536
LABEL_MAX, KERNEL_MAX, SIDE_MAX = 256, 255, 4096
NORM_EPS_MIN, NORM_EPS_MAX, MEAN_MAX, STD_MIN = 1e-30, 1.0, 1000.0, 1e-6


class ConfigError(ValueError):
    """A configuration that no model can have; the text names the key and what was expected."""


@dataclass
class MixerConfig:
    """`mixer` of config.json. Keys that the type does not use keep their defaults."""

    type: str
    heads: int = 1
    window: int = None  # aft-local: w is kept where abs(t - t') < window; 0 is aft-simple, and becomes that
    kernel: tuple = ()  # aft-conv: (K,) or (kh, kw)
    query_gate: bool = True
    global_sum: bool = True  # "global": false makes w minus infinity outside the window
    share_value_query: bool = False  # fastformer
    scale: bool = True  # simple-attention: divided by sqrt(T)
    norm: str = "l1"  # sima: of each channel of q and k over the tokens
    factorised: bool = True  # aft-full, aft-local: biases as pos_u pos_v^T (AFT eq. 7), else one matrix
    rank: int = 64  # their d', as AFT takes it for CIFAR-10; of a model that is loaded the tensors tell
    reparameterised: bool = True  # aft-conv: kernel as gain (r - mean) / std + bias (AFT eq. 8)


@dataclass
class ModelConfig:
    """A whole config.json. Heights and widths are (H, W) in pixels."""

    task: str
    dim: int
    depth: int
    mixer: MixerConfig
    mlp_ratio: int = 4
    activation: str = "gelu"
    norm_eps: float = 1e-5
    share_layers: bool = False
    pooling: str = "mean"
    labels: list = field(default_factory=list)
    size: tuple = ()
    patch: tuple = ()
    mean: tuple = ()
    std: tuple = ()
    resize_to: int = 0  # 0: min(size)
    interpolation: str = "bicubic"
    context: int = 0
    chat_template: dict = None  # text-generation: for the daemon, kept as it is

    def __post_init__(self):
        check(self)
        if self.mixer.type == "aft-local" and self.mixer.window == 0:  # AFT table 5
            self.mixer = dataclasses.replace(self.mixer, type="aft-simple")

    @property
    def causal(self):
        return self.task in CAUSAL_TASKS

    @property
    def grid(self):
        """(rows, columns) of patches; () unless the input is an image."""
        return tuple(s // p for s, p in zip(self.size, self.patch)) if self.task == "image-classification" else ()

    @property
    def tokens(self):
        """Length of the sequence that the mixers see: of an image with its class token, else the context T."""
        if self.grid:
            return self.grid[0] * self.grid[1] + (self.pooling == "class-token")
        return self.context

    @property
    def outputs(self):
        return 256 if self.causal else len(self.labels)


def expect(ok, key, value, wanted):
    if not ok:
        raise ConfigError(f"config.json: {key} is {'missing' if value is None else repr(value)}, expected {wanted}")


def is_count(value, most, least=1):
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check(c):
    """Raise ConfigError for a key out of range or two keys that contradict each other."""
    m = c.mixer
    expect(c.task in TASKS, "task", c.task, "one of " + ", ".join(TASKS))
    expect(m.type in MIXERS, "mixer.type", m.type, "one of " + ", ".join(MIXERS))
    for key, most in (("dim", DIM_MAX), ("depth", DEPTH_MAX)):
        expect(is_count(getattr(c, key), most), key, getattr(c, key), f"an integer 1..{most}")
    expect(is_count(c.mlp_ratio, HIDDEN_MAX // c.dim), "mlp_ratio", c.mlp_ratio,
           f"a positive integer that makes of dim {c.dim} at most {HIDDEN_MAX} hidden units")
    expect(c.activation in ACTIVATIONS, "activation", c.activation, "one of " + ", ".join(ACTIVATIONS))
    expect(NORM_EPS_MIN <= c.norm_eps <= NORM_EPS_MAX, "norm_eps", c.norm_eps,
           f"a number {NORM_EPS_MIN:g}..{NORM_EPS_MAX:g}")
    expect(c.pooling in POOLINGS, "pooling", c.pooling, "one of " + ", ".join(POOLINGS))
    expect(m.norm in NORMS, "mixer.norm", m.norm, "one of " + ", ".join(NORMS))
    if m.type in HEADED_MIXERS:
        expect(is_count(m.heads, c.dim) and c.dim % m.heads == 0, "mixer.heads", m.heads, f"a divisor of dim, {c.dim}")
    expect(not c.causal or m.type in CAUSAL_MIXERS, "mixer.type", m.type,
           f"a mixer with a causal form for {c.task}")
    if m.type == "aft-local":
        expect(is_count(m.window, CONTEXT_MAX, least=0), "mixer.window", m.window, f"an integer 0..{CONTEXT_MAX}")
        expect(m.window > 0 or m.global_sum, "mixer.window", m.window, "1 or more where mixer.global is false")
    if m.type == "aft-conv":
        sides, most, wanted = (2, KERNEL_MAX, "K or [kh, kw], integers") if TASKS[c.task] == "image" else (
            1, CONTEXT_MAX, "K, an integer")
        expect(len(m.kernel) == sides and all(is_count(k, most) for k in m.kernel), "mixer.kernel", m.kernel,
               f"{wanted} 1..{most}")
        expect(not (c.task == "image-classification" and c.pooling == "class-token"), "pooling", c.pooling,
               '"mean" or "attention" with aft-conv: a class token has no place in the grid')
    if c.causal:
        expect(not c.labels, "labels", c.labels, f"none: {c.task} has no classes")
    else:
        expect(1 <= len(c.labels) <= CLASSES_MAX, "labels", c.labels[:3], f"a list of 1..{CLASSES_MAX} classes' names")
        for i, label in enumerate(c.labels):
            expect(is_label(label), f"labels[{i}]", label, f"at most {LABEL_MAX} bytes of UTF-8 without NUL")
    if TASKS[c.task] == "image":
        check_image(c)
    else:
        expect(is_count(c.context, CONTEXT_MAX), "input.context", c.context, f"an integer 1..{CONTEXT_MAX}")
    if TASKS[c.task] == "pixels":
        expect(len(c.size) == 2 and all(is_count(s, SIDE_MAX) for s in c.size), "input.size", c.size, "[H, W]")
        expect(c.context == c.size[0] * c.size[1] * 3, "input.context", c.context,
               f"H * W * 3 = {c.size[0] * c.size[1] * 3}")


def check_image(c):
    """The part of `check` that is about the input of a picture classifier."""
    for key in ("size", "patch"):
        pair = getattr(c, key)
        expect(len(pair) == 2 and all(is_count(x, SIDE_MAX) for x in pair), "input." + key, pair,
               f"[H, W], integers 1..{SIDE_MAX}")
    expect(all(s % p == 0 for s, p in zip(c.size, c.patch)), "input.patch", c.patch,
           f"divisors of input.size, {list(c.size)}")
    expect(c.tokens <= CONTEXT_MAX, "input.patch", c.patch, f"sides that make at most {CONTEXT_MAX} patches")
    for key, least in (("mean", -MEAN_MAX), ("std", STD_MIN)):
        numbers = getattr(c, key)
        expect(len(numbers) == 3 and all(is_number(x) and least <= x <= MEAN_MAX for x in numbers), "input." + key,
               numbers, f"3 numbers {least:g}..{MEAN_MAX:g}")
    expect(c.resize_to == 0 or is_count(c.resize_to, SIDE_MAX), "input.resize_to", c.resize_to,
           f"an integer 1..{SIDE_MAX}")
    expect(c.interpolation in ("bicubic", "bilinear"), "input.interpolation", c.interpolation,
           '"bicubic" or "bilinear"')


def is_label(value):
    try:
        return isinstance(value, str) and "\0" not in value and len(value.encode()) <= LABEL_MAX
    except UnicodeEncodeError:  # a file name of other bytes than UTF-8
        return False


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# The keys of config.json's three objects and what JSON type each has. `factorised` and `reparameterised` are allowed
# and mean nothing: the tensors tell.
KEYS = {
    "": {"format": str, "version": int, "task": str, "dim": int, "depth": int, "mlp_ratio": int, "activation": str,
         "norm_eps": float, "share_layers": bool, "mixer": dict, "pooling": str, "labels": list, "input": dict,
         "chat_template": dict},
    "mixer.": {"type": str, "heads": int, "window": int, "kernel": (int, list), "query_gate": bool, "global": bool,
               "share_value_query": bool, "factorised": bool, "reparameterised": bool, "scale": bool, "norm": str},
    "input.": {"kind": str, "size": list, "patch": list, "mean": list, "std": list, "resize_to": int,
               "interpolation": str, "context": int},
}
REQUIRED_MIXER = {"heads": HEADED_MIXERS, "window": ("aft-local",), "kernel": ("aft-conv",)}
REQUIRED_INPUT = {"image": ("size", "patch", "mean", "std"), "bytes": ("context",), "pixels": ("size", "context")}
TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "a list",
              dict: "an object", (int, list): "an integer or a list"}


def typed(values, prefix, required):
    """Check the types of one object of config.json; warn of keys that nobody knows. -> {key: value}"""
    kinds = KEYS[prefix]
    for key, value in values.items():
        if key not in kinds:
            print(f'config.json: unknown key "{prefix}{key}" is ignored', file=sys.stderr)
            continue
        kind = kinds[key]
        number = is_number(value) if kind is float else isinstance(value, kind)
        expect(number and (kind is bool or not isinstance(value, bool)), prefix + key, value, TYPE_NAMES[kind])
    for key in required:
        expect(key in values, prefix + key, None, TYPE_NAMES[kinds[key]])
    return values


def unique(pairs):
    """json's object_pairs_hook that refuses a key given twice, as the daemon does."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'the key "{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return values


def from_json(text):
    """The text of a config.json -> ModelConfig. Raises ConfigError."""
    try:
        j = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"config.json: {e}") from None
    if not isinstance(j, dict) or j.get("format") != FORMAT or j.get("version") != VERSION:
        found = f"{j.get('format')!r} and {j.get('version')!r}" if isinstance(j, dict) else f"no object but {j!r:.40}"
        raise ConfigError(f'config.json: format and version are {found}, expected "{FORMAT}" and {VERSION}')
    typed(j, "", ("task", "dim", "depth", "mixer", "input"))
    expect(j["task"] in TASKS, "task", j["task"], "one of " + ", ".join(TASKS))
    kind = TASKS[j["task"]]
    expect(j["input"].get("kind") == kind, "input.kind", j["input"].get("kind"), f'"{kind}" for {j["task"]}')
    i = typed(j["input"], "input.", REQUIRED_INPUT[kind])
    needed = [key for key, mixers in REQUIRED_MIXER.items() if j["mixer"].get("type") in mixers]
    m = typed(j["mixer"], "mixer.", ["type", *needed])
    kernel = m.get("kernel", [])
    if isinstance(kernel, int):
        kernel = [kernel, kernel] if kind == "image" else [kernel]
    mixer = MixerConfig(
        type=m["type"], heads=m.get("heads", 1), window=m.get("window"), kernel=tuple(kernel),
        query_gate=m.get("query_gate", True), global_sum=m.get("global", True),
        share_value_query=m.get("share_value_query", False), factorised=m.get("factorised", True),
        reparameterised=m.get("reparameterised", True), scale=m.get("scale", True), norm=m.get("norm", "l1"))
    return ModelConfig(
        task=j["task"], dim=j["dim"], depth=j["depth"], mixer=mixer, mlp_ratio=j.get("mlp_ratio", 4),
        activation=j.get("activation", "gelu"), norm_eps=float(j.get("norm_eps", 1e-5)),
        share_layers=j.get("share_layers", False), pooling=j.get("pooling", "mean"), labels=j.get("labels", []),
        size=tuple(i.get("size", ())), patch=tuple(i.get("patch", ())), mean=tuple(i.get("mean", ())),
        std=tuple(i.get("std", ())), resize_to=i.get("resize_to", 0),
        interpolation=i.get("interpolation", "bicubic"), context=i.get("context", 0),
        chat_template=j.get("chat_template") if j["task"] == "text-generation" else None)


def to_json(c):
    """ModelConfig -> the text of config.json, with the keys that this model uses and nothing else."""
    m, kind = c.mixer, TASKS[c.task]
    mixer = {"type": m.type}
    if m.type in HEADED_MIXERS:
        mixer["heads"] = m.heads
    if m.type == "aft-local":
        mixer["window"] = m.window
    if m.type == "aft-conv":
        mixer["kernel"] = list(m.kernel) if kind == "image" else m.kernel[0]
    if m.type == "fastformer":
        mixer["share_value_query"] = m.share_value_query
    if m.type == "simple-attention" and not m.scale:
        mixer["scale"] = False
    if m.type == "sima" and m.norm != "l1":
        mixer["norm"] = m.norm
    if m.type.startswith("aft-"):
        if not m.query_gate:
            mixer["query_gate"] = False
        if not m.global_sum:
            mixer["global"] = False
    j = {"format": FORMAT, "version": VERSION, "task": c.task, "dim": c.dim, "depth": c.depth,
         "mlp_ratio": c.mlp_ratio, "activation": c.activation, "norm_eps": c.norm_eps, "mixer": mixer}
    if c.share_layers:
        j["share_layers"] = True
    if not c.causal:
        j.update(pooling=c.pooling, labels=c.labels)
    if kind == "image":
        j["input"] = {"kind": kind, "size": list(c.size), "patch": list(c.patch), "mean": list(c.mean),
                      "std": list(c.std), "resize_to": c.resize_to or min(c.size), "interpolation": c.interpolation}
    elif kind == "pixels":
        j["input"] = {"kind": kind, "size": list(c.size), "context": c.context}
    else:
        j["input"] = {"kind": kind, "context": c.context}
    if c.chat_template is not None:
        j["chat_template"] = c.chat_template
    return json.dumps(j, indent=1) + "\n"


def replace(c, **changes):
    """A copy of a ModelConfig with some keys changed, checked anew."""
    return dataclasses.replace(c, **changes)
