"""How products in integers round their inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def rounded(x: Tensor) -> Tensor:
    """What the kernel multiplies, float64: every 32 inputs become int8 times their scale."""
    rows, inputs = x.shape
    groups = np.pad(x.numpy(), ((0, 0), (0, -inputs % 32))).reshape(rows, -1, 32)
    peak = np.abs(groups).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(peak > 0, np.float32(127) / peak, np.float32(0))
    codes = np.rint(groups * inverse).astype(np.float64)
    scale = (peak / np.float32(127)).astype(np.float64)
    return torch.from_numpy((codes * scale).reshape(rows, -1)[:, :inputs].copy())
