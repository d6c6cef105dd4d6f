"""How products in integers round their inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cpu.integers import IntegerKind


def rounded(x: Tensor, kind: IntegerKind | None = None) -> Tensor:
    """What the kernel multiplies, float64: every 32 inputs, or 256 for some kinds of weights,
    become int8 times their scale."""
    rows, inputs = x.shape
    group = 256 if kind in (IntegerKind.NIBBLES_K, IntegerKind.BYTES_K) else 32
    groups = np.pad(x.numpy(), ((0, 0), (0, -inputs % group))).reshape(rows, -1, group)
    peak = np.abs(groups).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(peak > 0, np.float32(127) / peak, np.float32(0))
    codes = np.rint(groups * inverse).astype(np.float64)
    scale = (peak / np.float32(127)).astype(np.float64)
    return torch.from_numpy((codes * scale).reshape(rows, -1)[:, :inputs].copy())
