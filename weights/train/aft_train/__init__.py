"""PyTorch twins of the models that the daemon serves: train, convert, load and export them."""
from .export import ModelError, export, load
from .model import Model
from .model_config import ConfigError, MixerConfig, ModelConfig

__all__ = ["ConfigError", "MixerConfig", "Model", "ModelConfig", "ModelError", "export", "load"]
