"""How far kernels may be from float64, and RMS norm in float64."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def close(found: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found.double().cpu(), expected, atol=tolerance, rtol=tolerance)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double().cpu()
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double().cpu()
