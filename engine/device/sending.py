"""Sends arrays to the device without waiting for it.

Copying an ordinary array to a GPU makes the host wait until the GPU has finished all earlier work,
which ends any overlap of planning and computing. From pinned memory it does not.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# In bytes. Kernels are compiled for pointers that are multiples of 16 bytes; arrays aligned
# otherwise would cause a compilation while serving.
_ALIGNMENT = 64


def sent(arrays: Items[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Return the ``arrays``, which the caller leaves as they are from now on, on ``device``, after
    one copy that the host does not wait for. On a CPU nothing is copied."""
    if device.type == "cpu":
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    return packed_and_sent(arrays, device) if arrays else []


def packed_and_sent(arrays: Items[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Do so by a copy on any device; each array arrives aligned."""
    ends = np.cumsum([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays])
    packed = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=device.type == "cuda")
    host = packed.numpy()
    starts = [0, *ends[:-1].tolist()]
    for start, array in zip(starts, arrays, strict=True):
        place = host[start : start + array.nbytes].view(array.dtype)
        place[:] = array.reshape(-1)
    there = packed.to(device, non_blocking=True)
    return [
        there[start : start + array.nbytes].view(_dtype(array.dtype)).view(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]


def sent_one(array: NDArray[Any], device: torch.device) -> Tensor:
    """Send a single array."""
    [there] = sent([array], device)
    return there


def _dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
