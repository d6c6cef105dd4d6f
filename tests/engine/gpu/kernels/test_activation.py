"""The gate of a feed-forward equals its activation and product in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton")

from engine.gpu.kernels.activation import gated
from tests.engine.gpu.kernels.closeness import close


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("inner", [80, 1500])
def test_gated(device: torch.device, activation: str, inner: int) -> None:
    torch.manual_seed(inner)
    gate_up = torch.randn(3, 2 * inner, device=device) * 3
    gate, up = gate_up.double().cpu().chunk(2, dim=1)
    activated = {
        "silu": functional.silu(gate),
        "gelu": functional.gelu(gate),
        "gelu_tanh": functional.gelu(gate, approximate="tanh"),
        "relu": functional.relu(gate),
    }[activation]
    close(gated(gate_up, activation), activated * up)
