"""Whether the kernels can run here. Does not import triton."""

from __future__ import annotations

import importlib.util
import os

import torch

from engine.architecture.config import ModelConfig

# The widest head that fits a tile.
_MAX_HEAD_DIM = 256


class KernelsUnavailableError(RuntimeError):
    """The kernels cannot run; the message says why."""


def require_triton(device: torch.device) -> None:
    """Raise KernelsUnavailableError if kernels cannot run on ``device``. A GPU needs triton; a CPU
    can only run them in triton's interpreter."""
    if importlib.util.find_spec("triton") is None:
        raise KernelsUnavailableError("triton is not installed")
    if device.type == "cuda":
        return
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise KernelsUnavailableError(
            "triton compiles for GPUs only (TRITON_INTERPRET=1 interprets, very slowly)"
        )


def kernels_fit(config: ModelConfig) -> bool:
    """Whether the kernels support this model."""
    return config.rope is not None and config.head_dim <= _MAX_HEAD_DIM
