"""Models of every kind, small enough to run hundreds of them."""
import torch

from aft_train.model import Model
from aft_train.model_config import CAUSAL_MIXERS, CAUSAL_TASKS, MIXERS, TASKS, MixerConfig, ModelConfig

KINDS = [(task, mixer) for task in TASKS for mixer in MIXERS
         if task not in CAUSAL_TASKS or mixer in CAUSAL_MIXERS]


def tiny_config(task="text-generation", mixer="aft-local", *, dim=8, depth=2, **more):
    """more: keys of ModelConfig; keys of MixerConfig too, which have other names."""
    image = TASKS[task] == "image"
    own = {key: more.pop(key) for key in list(more) if key in MixerConfig.__dataclass_fields__}
    own = {"heads": 2, "window": 3, "kernel": (3, 3) if image else (3,), **own}
    shape = {"image": dict(size=(8, 8), patch=(2, 2), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)),
             "bytes": dict(context=12), "pixels": dict(size=(2, 2), context=12)}[TASKS[task]]
    labels = {} if task in CAUSAL_TASKS else {"labels": ["cat", "dog", "ship"]}
    return ModelConfig(task, dim=dim, depth=depth, mixer=MixerConfig(mixer, **own), **{**shape, **labels, **more})


def tiny_model(*args, seed=0, model=None, **more):
    """A Model in eval mode whose tensors are all far from where training starts: gains, biases and norms count."""
    torch.manual_seed(seed)
    model = Model(tiny_config(*args, **more), **(model or {}))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.6 if p.dim() < 2 or "mixer" not in name else 0.4) + ("norm" in name))
    return model.eval()
