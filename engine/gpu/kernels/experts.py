"""Feed-forwards of experts: for a few rows each row's own, and for many rows grouped by expert.

A few rows read the weights of their experts once for each row, as products of few rows do
(``engine.gpu.kernels.skinny``). Many rows are sorted by expert; a program computes a tile of one
expert's rows, and each row's results are added up afterwards, so nothing is added atomically and a
row's sum has one order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.activation import activated
from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import (
    dot_dtype,
    early_launch,
    expert_tiles,
    row_stride,
    skinny_tiles,
)
from engine.gpu.kernels.routing import Groups
from engine.gpu.kernels.skinny import Norm
from engine.gpu.kernels.types import triton_type


@triton.jit
def _gates_of_pair(
    x,
    weight,
    gain,
    chosen,
    out,
    x_stride,
    expert_stride,
    weight_stride,
    eps,
    INPUTS: tl.constexpr,
    INNER: tl.constexpr,
    TOP_K: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_NORM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute some gated columns of a row, or of its norm, by one of its experts."""
    await_inputs(EARLY)
    pair = tl.program_id(1)
    expert = tl.load(chosen + pair).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inputs = tl.arange(0, DEPTH)
    is_column = columns < INNER
    x += (pair // TOP_K).to(tl.int64) * x_stride
    gates_weight = weight + expert * expert_stride + columns.to(tl.int64)[:, None] * weight_stride
    ups_weight = gates_weight + INNER * weight_stride
    gates = tl.zeros([COLUMNS, DEPTH], tl.float32)
    ups = tl.zeros([COLUMNS, DEPTH], tl.float32)
    squares = tl.zeros([DEPTH], tl.float32)
    for start in range(0, INPUTS, DEPTH):
        places = start + inputs
        is_input = places < INPUTS
        mask = is_column[:, None] & is_input[None, :]
        factors = tl.load(gates_weight + places[None, :], mask=mask, other=0.0)
        up_factors = tl.load(ups_weight + places[None, :], mask=mask, other=0.0)
        values = tl.load(x + places, mask=is_input, other=0.0).to(tl.float32)
        if HAS_NORM:
            squares += values * values
            values *= tl.load(gain + places, mask=is_input, other=0.0).to(tl.float32)
        gates += factors.to(tl.float32) * values[None, :]
        ups += up_factors.to(tl.float32) * values[None, :]
    scale = 1.0
    if HAS_NORM:
        scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / INPUTS + eps)
    gate = activated(tl.sum(gates, 1) * scale, ACTIVATION)
    total = gate * (tl.sum(ups, 1) * scale)
    tl.store(out + pair * INNER + columns, total.to(out.dtype.element_ty), mask=is_column)


@triton.jit
def _downs_of_row(
    x,
    weight,
    chosen,
    weights,
    residual,
    out,
    expert_stride,
    weight_stride,
    row_stride,
    INNER: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TOP_K: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    ADDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute some columns of the sum of a row's experts, times their weights."""
    await_inputs(EARLY)
    row = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inputs = tl.arange(0, DEPTH)
    is_column = columns < OUTPUTS
    totals = tl.zeros([COLUMNS, DEPTH], tl.float32)
    for place in range(TOP_K):
        pair = row * TOP_K + place
        expert = tl.load(chosen + pair).to(tl.int64)
        factor = tl.load(weights + pair)
        places = weight + expert * expert_stride + columns.to(tl.int64)[:, None] * weight_stride
        for start in range(0, INNER, DEPTH):
            is_input = start + inputs < INNER
            mask = is_column[:, None] & is_input[None, :]
            factors = tl.load(places + (start + inputs)[None, :], mask=mask, other=0.0)
            values = tl.load(x + pair * INNER + start + inputs, mask=is_input, other=0.0)
            totals += factors.to(tl.float32) * (values.to(tl.float32) * factor)[None, :]
    total = tl.sum(totals, 1)
    at = row.to(tl.int64) * row_stride + columns
    if ADDS:
        total += tl.load(residual + at, mask=is_column, other=0.0).to(tl.float32)
        tl.store(residual + at, total.to(residual.dtype.element_ty), mask=is_column)
    else:
        tl.store(out + at, total.to(out.dtype.element_ty), mask=is_column)


def experts_of_few(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    chosen: Tensor,
    weights: Tensor,
    *,
    activation: str,
    norm: Norm | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """Return the mixture of ``x`` [rows, hidden], or of its norm, in its dtype, plus ``residual``,
    which is overwritten, if given.

    ``gate_up`` [experts, 2 * inner, hidden], gates first; ``down`` [experts, hidden, inner];
    ``chosen`` int32 and ``weights`` float32 [rows, top_k]: of ``choose_experts``.
    """
    (rows, hidden), top_k = x.shape, chosen.shape[1]
    inner = down.shape[2]
    tiles = skinny_tiles(1, gated=True)
    inside = torch.empty(rows * top_k, inner, dtype=x.dtype, device=x.device)
    _gates_of_pair[(triton.cdiv(inner, tiles.columns), rows * top_k)](
        *(x, gate_up, None if norm is None else norm.gain, chosen, inside, row_stride(x)),
        gate_up.stride(0),
        gate_up.stride(1),
        0.0 if norm is None else norm.eps,
        INPUTS=hidden,
        INNER=inner,
        TOP_K=top_k,
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        ACTIVATION=activation,
        HAS_NORM=norm is not None,
        **early_launch(),
        num_warps=tiles.warps,
    )
    out = torch.empty_like(x) if residual is None else residual
    tiles = skinny_tiles(1, gated=False)
    _downs_of_row[(triton.cdiv(hidden, tiles.columns), rows)](
        *(inside, down, chosen, weights, residual, out),
        down.stride(0),
        down.stride(1),
        row_stride(out),
        INNER=inner,
        OUTPUTS=hidden,
        TOP_K=top_k,
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        ADDS=residual is not None,
        **early_launch(),
        num_warps=tiles.warps,
    )
    return out


@triton.jit
def _grouped(
    x,
    weight,
    order,
    begins,
    tile_ends,
    weights,
    out,
    x_stride,
    expert_stride,
    weight_stride,
    COUNT: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    TOP_K: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Compute a tile of an expert's pairs. With ``ACTIVATION``: from ``x`` [rows, INPUTS] to
    ``out`` [pairs in order of experts, OUTPUTS], gated. Else from ``x``, which is that, to ``out``
    [row * TOP_K + place, OUTPUTS], times the experts' ``weights``."""
    tile = tl.program_id(1)
    every = tl.arange(0, EXPERT_BLOCK)
    ends = tl.load(tile_ends + every, mask=every < COUNT, other=0)
    if tile >= tl.max(ends, 0):
        return
    is_before = (every < COUNT) & (ends <= tile)
    expert = tl.sum(tl.where(is_before, 1, 0), 0)
    first = tl.load(begins + expert) + (tile - tl.max(tl.where(is_before, ends, 0), 0)) * ROWS
    slots = first + tl.arange(0, ROWS)
    is_row = slots < tl.load(begins + expert + 1)
    pairs = tl.load(order + slots, mask=is_row, other=0)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < OUTPUTS
    inputs = tl.arange(0, DEPTH)
    sources = pairs // TOP_K if ACTIVATION != "" else slots
    x_places = x + sources.to(tl.int64)[:, None] * x_stride + inputs[None, :]
    offsets = columns.to(tl.int64)[None, :] * weight_stride + inputs[:, None]
    weight_places = weight + expert.to(tl.int64) * expert_stride + offsets
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    ups = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, INPUTS, DEPTH):
        is_input = start + inputs < INPUTS
        mask = is_input[:, None] & is_column[None, :]
        values = tl.load(x_places + start, mask=is_row[:, None] & is_input[None, :], other=0.0)
        factors = tl.load(weight_places + start, mask=mask, other=0.0)
        total = tl.dot(values.to(DTYPE), factors.to(DTYPE), total, input_precision="ieee")
        if ACTIVATION != "":
            further = weight_places + OUTPUTS * weight_stride + start
            factors = tl.load(further, mask=mask, other=0.0)
            ups = tl.dot(values.to(DTYPE), factors.to(DTYPE), ups, input_precision="ieee")
    targets = slots
    if ACTIVATION != "":
        total = activated(total, ACTIVATION) * ups
    else:
        total *= tl.load(weights + pairs, mask=is_row, other=0.0)[:, None]
        targets = pairs
    places = out + targets.to(tl.int64)[:, None] * OUTPUTS + columns[None, :]
    tl.store(places, total.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


def experts_of_many(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    groups: Groups,
    weights: Tensor,
    *,
    activation: str,
) -> Tensor:
    """Return the mixture of ``x`` [rows, hidden], in its dtype; for the others see
    ``experts_of_few``. ``groups``: of its rows' experts."""
    (rows, hidden), (pairs, top_k) = x.shape, (groups.order.shape[0], weights.shape[1])
    inner = down.shape[2]
    inside = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    parts = torch.empty(rows, top_k, hidden, dtype=x.dtype, device=x.device)
    for source, weight, out, outputs, name in (
        (x, gate_up, inside, inner, activation),
        (inside, down, parts, hidden, ""),
    ):
        tiles = expert_tiles(groups.rows_per_tile, x.dtype)
        _grouped[(triton.cdiv(outputs, tiles.columns), groups.tiles)](
            *(source, weight, groups.order, groups.begins, groups.tile_ends, weights, out),
            row_stride(source),
            weight.stride(0),
            weight.stride(1),
            COUNT=weight.shape[0],
            EXPERT_BLOCK=max(16, triton.next_power_of_2(weight.shape[0])),
            TOP_K=top_k,
            INPUTS=source.shape[1],
            OUTPUTS=outputs,
            ROWS=tiles.rows,
            COLUMNS=tiles.columns,
            DEPTH=tiles.depth,
            ACTIVATION=name,
            DTYPE=triton_type(dot_dtype(x.dtype)),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return parts.sum(dim=1)
