"""Matrix products of a few rows, with what comes before and after them in the same launch.

A decode step of few sequences reads every weight once, and its launches take as long as small
weights do. So the norm before a product (arXiv 1910.07467), the gate after it (arXiv 2002.05202)
and the addition to the residual are part of it. The norm's factor is one number for each row, which
is multiplied at the end: its sum of squares comes out of the same loop as the product.

The tensor cores are not used. Their operands pass through shared memory, and with a norm in
between each tile waits for the one before: that took three times as long as reading the weights.
Here each thread multiplies what it has loaded, and all tiles are added up once, at the end.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.activation import activated
from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import (
    FEW_ROWS,
    SkinnyTiles,
    compiled_rows,
    early_launch,
    row_stride,
    skinny_tiles,
)


@dataclass(frozen=True, slots=True)
class Norm:
    """``gain`` [in]."""

    gain: Tensor
    eps: float


@triton.jit
def _weights(weight, columns, inputs, stride, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr):
    """Load [columns, inputs] of a weight [OUTPUTS, INPUTS]; zeros outside."""
    mask = (columns < OUTPUTS)[:, None] & (inputs < INPUTS)[None, :]
    places = weight + columns.to(tl.int64)[:, None] * stride + inputs[None, :]
    return tl.load(places, mask=mask, other=0.0)


@triton.jit
def _inputs(x, gain, squares, row, count, stride, inputs, INPUTS: tl.constexpr, NORM: tl.constexpr):
    """Load the values of a row and return them, multiplied by the norm's gains, and the sums of
    squares so far."""
    is_input = inputs < INPUTS
    values = tl.load(x + row * stride + inputs, mask=is_input & (row < count), other=0.0)
    values = values.to(tl.float32)
    if NORM:
        squares += values * values
        values *= tl.load(gain + inputs, mask=is_input, other=0.0).to(tl.float32)
    return values, squares


@triton.jit
def _finished(totals, scale, bias, columns, OUTPUTS: tl.constexpr, HAS_BIAS: tl.constexpr):
    """Return the sums over all inputs, times ``scale``, plus the bias: [columns]."""
    total = tl.sum(totals, 1) * scale
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=columns < OUTPUTS, other=0.0).to(tl.float32)
    return total


@triton.jit
def _skinny(
    x,
    weight,
    bias,
    gain,
    residual,
    out,
    count,
    x_stride,
    weight_stride,
    out_stride,
    eps,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    ADDS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute all rows of some columns. With ``ACTIVATION``, ``OUTPUTS`` is half of the weight's:
    gates come first."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inputs = tl.arange(0, DEPTH)
    ups_weight = weight + OUTPUTS * weight_stride
    # No kernel writes weights, so the first are read while the kernel before still runs. Each tile
    # is loaded before the one in front of it is used.
    factors = _weights(weight, columns, inputs, weight_stride, OUTPUTS, INPUTS)
    if ACTIVATION != "":
        up_factors = _weights(ups_weight, columns, inputs, weight_stride, OUTPUTS, INPUTS)
    await_inputs(EARLY)
    # One of each for every row. A tensor of three dimensions would change its layout in the loop.
    totals = (tl.zeros([COLUMNS, DEPTH], tl.float32),) * ROWS
    ups = totals
    squares = (tl.zeros([DEPTH], tl.float32),) * ROWS
    for start in range(0, INPUTS, DEPTH):
        now = factors.to(tl.float32)
        following = start + DEPTH + inputs
        factors = _weights(weight, columns, following, weight_stride, OUTPUTS, INPUTS)
        if ACTIVATION != "":
            ups_now = up_factors.to(tl.float32)
            up_factors = _weights(ups_weight, columns, following, weight_stride, OUTPUTS, INPUTS)
        totals_before, ups_before, squares_before = totals, ups, squares
        totals, ups, squares = (), (), ()
        for row in tl.static_range(ROWS):
            values, added = _inputs(
                *(x, gain, squares_before[row], row, count, x_stride, start + inputs),
                INPUTS=INPUTS,
                NORM=HAS_NORM,
            )
            squares += (added,)
            totals += (totals_before[row] + now * values[None, :],)
            if ACTIVATION != "":
                ups += (ups_before[row] + ups_now * values[None, :],)
            else:
                ups += (ups_before[row],)
    for row in tl.static_range(ROWS):
        scale = 1.0
        if HAS_NORM:
            scale = 1.0 / tl.sqrt(tl.sum(squares[row], 0) / INPUTS + eps)
        total = _finished(totals[row], scale, bias, columns, OUTPUTS, HAS_BIAS)
        if ACTIVATION != "":
            ups_bias = bias + OUTPUTS if HAS_BIAS else bias
            up = _finished(ups[row], scale, ups_bias, columns, OUTPUTS, HAS_BIAS)
            total = activated(total, ACTIVATION) * up
        is_real = (columns < OUTPUTS) & (row < count)
        places = row * out_stride + columns
        if ADDS:
            total += tl.load(residual + places, mask=is_real, other=0.0).to(tl.float32)
            tl.store(residual + places, total.to(residual.dtype.element_ty), mask=is_real)
        else:
            tl.store(out + places, total.to(out.dtype.element_ty), mask=is_real)


def skinny_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    tiles: SkinnyTiles | None = None,
) -> Tensor:
    """Return ``x @ weight.T + bias`` for ``x`` [rows, in], at most ``FEW_ROWS`` of them, and
    ``weight`` [out, in]: [rows, out] in x's dtype.

    ``norm``: of x, before. ``activation``: ``weight`` and ``bias`` are those of gate and up, and
    the result is activation(gate) * up, [rows, out / 2]. ``residual`` [rows, out]: the result is
    added to it in place, and it is returned. ``tiles`` override the table's.
    """
    rows, inputs = x.shape
    if rows > FEW_ROWS:
        raise ValueError(f"{rows} rows; at most {FEW_ROWS} are supported")
    outputs = weight.shape[0] // 2 if activation else weight.shape[0]
    tiles = tiles or skinny_tiles(rows, gated=bool(activation))
    out = residual
    if out is None:
        out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    _skinny[(triton.cdiv(outputs, tiles.columns),)](
        x,
        weight,
        bias,
        None if norm is None else norm.gain,
        residual,
        out,
        rows,
        row_stride(x),
        row_stride(weight),
        row_stride(out),
        0.0 if norm is None else norm.eps,
        INPUTS=inputs,
        OUTPUTS=outputs,
        ROWS=compiled_rows(rows),
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        HAS_BIAS=bias is not None,
        HAS_NORM=norm is not None,
        ADDS=residual is not None,
        ACTIVATION=activation,
        **early_launch(),
        num_warps=tiles.warps,
    )
    return out
