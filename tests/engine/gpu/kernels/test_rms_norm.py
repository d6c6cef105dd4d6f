"""RMS norm, alone and with the addition before it, equals float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.rms_norm import add_rms_norm, rms_norm
from tests.engine.gpu.kernels.closeness import TOLERANCE, close, normalised


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("size", [16, 48, 1000])
def test_rms_norm(device: torch.device, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    x = torch.randn(3, size + 5, device=device).to(dtype)[:, :size]  # rows with a gap between
    weight = torch.randn(size, device=device).to(dtype)
    close(rms_norm(x, weight, 1e-5), normalised(x, weight), dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_add_rms_norm_keeps_the_sum(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, residual = torch.randn(2, 5, 96, device=device).to(dtype)
    weight = torch.randn(96, device=device).to(dtype)
    total = (x.double() + residual.double()).cpu()
    out = add_rms_norm(x, residual, weight, 1e-5)
    close(residual, total, dtype)
    close(out, normalised(residual, weight), dtype)
