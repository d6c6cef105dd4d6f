"""The embedded default model: a tiny chat model of our own, its text, its training, its weights.

Importing this package is cheap and needs nothing but the standard library; only the modules that
train, export or evaluate import torch.
"""

from pathlib import Path
from typing import Final

MODEL_DIR: Final[Path] = Path(__file__).parent / "weights"
"""Directory of the model in Hugging Face layout, as shipped with the package."""

__all__ = ["MODEL_DIR"]
