"""Products of few rows, with norm, gate and residual in the same launch, equal float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.gpu.kernels.launch import FEW_ROWS, SKINNY
from engine.gpu.kernels.skinny import Norm, skinny_product
from engine.model.layers import ACTIVATIONS

EPS = 1e-5
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 1.5e-2}


def close(found: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCES[dtype] * float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)


def some(*shape: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=device).to(dtype)


def normed(x: Tensor, gain: Tensor) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * gain.double()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 64, 64), (3, 300, 40), (4, 1100, 33)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_norm", [False, True])
def test_plain_and_after_a_norm(
    *,
    device: torch.device,
    dtype: torch.dtype,
    rows: int,
    inputs: int,
    outputs: int,
    has_bias: bool,
    has_norm: bool,
) -> None:
    torch.manual_seed(rows)
    x = some(rows, inputs, device=device, dtype=dtype)
    weight = some(outputs, inputs, device=device, dtype=dtype)
    bias = some(outputs, device=device, dtype=dtype) if has_bias else None
    gain = some(inputs, device=device, dtype=dtype)
    exact = (normed(x, gain) if has_norm else x.double()) @ weight.double().T
    exact = exact if bias is None else exact + bias.double()
    norm = Norm(gain, EPS) if has_norm else None
    close(skinny_product(x, weight, bias, norm=norm), exact, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_gated_after_a_norm(
    *, device: torch.device, dtype: torch.dtype, name: str, has_bias: bool
) -> None:
    torch.manual_seed(5)
    x = some(2, 96, device=device, dtype=dtype)
    weight = some(2 * 48, 96, device=device, dtype=dtype) * 0.1
    bias = some(2 * 48, device=device, dtype=dtype) if has_bias else None
    gain = some(96, device=device, dtype=dtype)
    both = normed(x, gain) @ weight.double().T
    both = both if bias is None else both + bias.double()
    gate, up = both.chunk(2, dim=-1)
    found = skinny_product(x, weight, bias, norm=Norm(gain, EPS), activation=name)
    close(found, ACTIVATIONS[name](gate.clone()) * up, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_added_to_the_residual_in_place(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    x = some(3, 80, device=device, dtype=dtype)
    weight = some(48, 80, device=device, dtype=dtype)
    residual = some(3, 48, device=device, dtype=dtype)
    exact = residual.double() + x.double() @ weight.double().T
    assert skinny_product(x, weight, residual=residual) is residual
    close(residual, exact, dtype)


def test_rows_may_be_apart_and_not_too_many(device: torch.device) -> None:
    torch.manual_seed(7)
    wide = torch.randn(FEW_ROWS + 1, 100, device=device)
    weight = torch.randn(20, 64, device=device)
    x = wide[:3, 20:84]
    close(skinny_product(x, weight), x.double() @ weight.double().T, torch.float32)
    with pytest.raises(ValueError, match="at most 4"):
        skinny_product(wide[:, :64], weight)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("is_gated", [False, True])
def test_with_the_tiles_of_a_gpu(device: torch.device, *, rows: int, is_gated: bool) -> None:
    torch.manual_seed(8)
    x = torch.randn(rows, 2060, device=device)
    weight = torch.randn(18, 2060, device=device) * 0.1
    gain = torch.randn(2060, device=device)
    expected = normed(x, gain) @ weight.double().T
    if is_gated:
        gate, up = expected.chunk(2, dim=-1)
        expected = ACTIVATIONS["silu"](gate.clone()) * up
    tiles = SKINNY[4 if rows == 3 else rows, is_gated]
    activation = "silu" if is_gated else ""
    found = skinny_product(x, weight, norm=Norm(gain, EPS), activation=activation, tiles=tiles)
    close(found, expected, torch.float32)
