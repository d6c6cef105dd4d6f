"""Products equal float64, and a row's does not depend on the others."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.product import product

SIZES = [(1, 64, 64), (3, 96, 40), (70, 80, 130), (64, 208, 64)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_equals_float64(
    device: torch.device, dtype: torch.dtype, rows: int, inputs: int, outputs: int
) -> None:
    torch.manual_seed(rows)
    x = torch.randn(rows, inputs, device=device).to(dtype)
    weight = torch.randn(outputs, inputs, device=device).to(dtype)
    bias = torch.randn(outputs, device=device).to(dtype)
    for added in (None, bias):
        exact = x.double() @ weight.double().T + (0 if added is None else added.double())
        found = product(x, weight, added).double()
        tolerance = 1e-5 if dtype == torch.float32 else 8e-3
        torch.testing.assert_close(found, exact, rtol=tolerance, atol=tolerance * inputs**0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_to_the_bit_at_any_place_among_any_others(
    device: torch.device, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    weight = torch.randn(100, 96, device=device).to(dtype)
    row = torch.randn(1, 96, device=device).to(dtype)
    alone = product(row, weight)
    for count, place in ((2, 1), (64, 17), (65, 64), (200, 133)):
        others = torch.randn(count, 96, device=device).to(dtype)
        others[place] = row
        assert torch.equal(product(others, weight)[place], alone[0])


def test_rows_may_be_apart(device: torch.device) -> None:
    torch.manual_seed(2)
    wide = torch.randn(5, 200, device=device)
    weight = torch.randn(32, 64, device=device)
    torch.testing.assert_close(
        product(wide[:, 40:104], weight), wide[:, 40:104] @ weight.T, rtol=1e-4, atol=1e-4
    )
