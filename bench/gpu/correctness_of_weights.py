"""Compares products with weights of few bits, and mixtures of experts, with float64."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.correctness import Check, error
from bench.gpu.report import Row
from engine.gpu.kernels.experts import experts_of_few, experts_of_many
from engine.gpu.kernels.few_bit_product import few_bit_product
from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
from engine.gpu.kernels.few_bits import FewBitWeight, packed_e4m3, packed_few_bits
from engine.gpu.kernels.launch import VECTOR_ROWS, rows_per_expert_tile
from engine.gpu.kernels.routing import choose_experts, group
from engine.weights.grouped import GroupedWeight, Scales


def checks(device: torch.device, *, large: bool) -> list[Check]:
    """See ``correctness.checks``."""
    dtype = torch.bfloat16 if large else torch.float32
    size = 4096 if large else 300
    rows = (1, 4, 16, 64, 256) if large else (1, 6)
    return [
        *(
            (f"check product {kind}", partial(few_bits, kind, size, rows, dtype, device))
            for kind in ("int4", "int8", "fp8")
        ),
        ("check experts", partial(experts, large=large, dtype=dtype, device=device)),
    ]


def few_bits(
    kind: str, size: int, rows: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Row:
    weight, exact = _weight(kind, size, device)
    worst = 0.0
    for count in rows:
        x = torch.randn(count, size, device=device).to(dtype)
        multiply = few_bit_vectors if count <= VECTOR_ROWS else few_bit_product
        found = error(multiply(x, weight), x.double() @ exact.T, dtype)
        worst = max(worst, found["relative_error"])
    return {"relative_error": worst}


def _weight(kind: str, size: int, device: torch.device) -> tuple[FewBitWeight, Tensor]:
    """Return a weight in groups of 32, with and in float64."""
    groups = -(-size // 32)
    scales = torch.randint(1, 128, (size, groups), device=device).float() / 1024
    by_input = scales.double().repeat_interleave(32, 1)[:, :size]
    if kind == "fp8":
        floats = torch.randn(size, size, device=device).to(torch.float8_e4m3fn)
        return packed_e4m3(floats, scales, 32), floats.double() * by_input
    half = 8 if kind == "int4" else 128
    codes = torch.randint(-half, half, (size, size), device=device).to(torch.int8)
    packed = packed_few_bits(GroupedWeight(codes, Scales(scales), None, 32), device)
    assert packed is not None
    return packed, codes.double() * by_input


def experts(*, large: bool, dtype: torch.dtype, device: torch.device) -> Row:
    """For a few rows, and for many in tiles of both sizes."""
    hidden, inner, count, top_k = (2048, 768, 16, 4) if large else (40, 24, 5, 2)
    gate_up = torch.randn(count, 2 * inner, hidden, device=device).to(dtype) * hidden**-0.5
    down = torch.randn(count, hidden, inner, device=device).to(dtype) * inner**-0.5
    worst = 0.0
    for rows in (3, 40, 2000 if large else 90):
        x = torch.randn(rows, hidden, device=device).to(dtype)
        scores = torch.randn(rows, count, device=device)
        chosen, weights = choose_experts(scores, top_k, renormalised=True)
        if rows == 3:
            found = experts_of_few(x, gate_up, down, chosen, weights, activation="silu")
        else:
            tile = rows_per_expert_tile(chosen.numel(), count)
            groups = group(chosen, count, tile)
            found = experts_of_many(x, gate_up, down, groups, weights, activation="silu")
        expected = _mixture(x.double(), gate_up, down, chosen, weights)
        worst = max(worst, error(found, expected, dtype)["relative_error"])
    return {"relative_error": worst}


def _mixture(x: Tensor, gate_up: Tensor, down: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for expert in range(gate_up.shape[0]):
        rows, places = torch.where(chosen == expert)
        gate, up = (x[rows] @ gate_up[expert].double().T).chunk(2, dim=1)
        part = (functional.silu(gate) * up) @ down[expert].double().T
        out.index_add_(0, rows, part * weights[rows, places].double().unsqueeze(1))
    return out
