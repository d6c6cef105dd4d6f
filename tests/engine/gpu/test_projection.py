"""A linear map gives the same by any kernel."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.projection import Projection


@pytest.mark.parametrize("has_bias", [False, True])
def test_few_rows_and_many_and_deterministic_agree(device: torch.device, *, has_bias: bool) -> None:
    torch.manual_seed(2)
    weight = torch.randn(40, 72, device=device)
    bias = torch.randn(40, device=device) if has_bias else None
    x = torch.randn(3, 72, device=device)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    for found in (
        Projection(weight, bias)(x),
        Projection(weight, bias, deterministic=True)(x),
        Projection(weight, bias).of_few(x),
    ):
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-4)
