"""Mixtures of experts equal those of float64, for a few rows and for many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.gpu.kernels.experts import experts_of_few, experts_of_many
from engine.gpu.kernels.routing import choose_experts, group
from engine.gpu.kernels.skinny import Norm
from engine.model.layers import ACTIVATIONS
from tests.engine.gpu.kernels.test_skinny import EPS, TOLERANCES, close, normed


def mixture(
    x: Tensor, gate_up: Tensor, down: Tensor, chosen: Tensor, weights: Tensor, activation: str
) -> Tensor:
    """In float64, row by row."""
    x, out = x.double(), torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for row in range(x.shape[0]):
        for expert, factor in zip(chosen[row].tolist(), weights[row].double(), strict=True):
            gate, up = (gate_up[expert].double() @ x[row]).chunk(2)
            inside = ACTIVATIONS[activation](gate.clone()) * up
            out[row] += factor * (down[expert].double() @ inside)
    return out


def matrices(
    count: int, hidden: int, inner: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    gate_up = torch.randn(count, 2 * inner, hidden, device=device) * hidden**-0.5
    down = torch.randn(count, hidden, inner, device=device) * inner**-0.5
    return gate_up.to(dtype), down.to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_of_a_few_rows_after_a_norm(
    device: torch.device, *, dtype: torch.dtype, is_added: bool, activation: str
) -> None:
    torch.manual_seed(1)
    gate_up, down = matrices(6, 72, 40, device, dtype)
    x = torch.randn(3, 72, device=device).to(dtype)
    gain = torch.randn(72, device=device).to(dtype)
    chosen, weights = choose_experts(torch.randn(3, 6, device=device), 2, renormalised=True)
    expected = mixture(normed(x, gain), gate_up, down, chosen, weights, activation)
    residual = torch.randn(3, 72, device=device).to(dtype) if is_added else None
    if residual is not None:
        expected += residual.double()
    found = experts_of_few(
        x,
        gate_up,
        down,
        chosen,
        weights,
        norm=Norm(gain, EPS),
        activation=activation,
        residual=residual,
    )
    assert residual is None or found is residual
    close(found, expected, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rows_per_tile", [16, 64])
@pytest.mark.parametrize("rows", [5, 100])
def test_of_many_rows(
    device: torch.device, *, dtype: torch.dtype, rows_per_tile: int, rows: int
) -> None:
    torch.manual_seed(rows)
    gate_up, down = matrices(7, 40, 24, device, dtype)
    x = torch.randn(rows, 40, device=device).to(dtype)
    # Some experts have no rows, one has most.
    scores = torch.randn(rows, 7, device=device) + torch.tensor([9, 0, -50, 0, 0, -50, 0]).to(x)
    chosen, weights = choose_experts(scores, 3, renormalised=False)
    expected = mixture(x, gate_up, down, chosen, weights, "silu")
    groups = group(chosen, 7, rows_per_tile)
    found = experts_of_many(x, gate_up, down, groups, weights, activation="silu")
    close(found, expected, dtype)
