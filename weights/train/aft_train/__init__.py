"""PyTorch twins of the models that the daemon serves: train, convert, load and export them."""
import os

# Threads that wait for others sleep: if they spin, a step takes ten times as long beside other work. It is read when
# PyTorch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from .export import ModelError, export, load
from .model import Model
from .model_config import ConfigError, MixerConfig, ModelConfig

__all__ = ["ConfigError", "MixerConfig", "Model", "ModelConfig", "ModelError", "export", "load"]
