"""Matrix products of few rows, with what comes before and after them in the same launch.

A decode step of few sequences reads every weight once, and its launches take as long as small
weights do. So the norm before a product (arXiv 1910.07467), the gate after it (arXiv 2002.05202)
and the addition to the residual are part of it. The norm's factor is one number for each row, which
is multiplied at the end: its sum of squares comes out of the same loop as the product.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.activation import activated
from engine.gpu.kernels.dependent import await_inputs, fetch_early
from engine.gpu.kernels.launch import MIN_ROWS, SKINNY, dot_dtype, early_launch, row_stride
from engine.gpu.kernels.types import triton_type

FEW_ROWS = MIN_ROWS


@dataclass(frozen=True, slots=True)
class Norm:
    """``gain`` [in]."""

    gain: Tensor
    eps: float


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
    DTYPE: tl.constexpr,
    EARLY: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Compute all rows of some columns. With ``ACTIVATION``, ``OUTPUTS`` is half of the weight's:
    gates come first."""
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inputs = tl.arange(0, DEPTH)
    if EARLY:
        fetch_early(weight, columns, weight_stride, OUTPUTS, INPUTS, SPAN)
        if ACTIVATION != "":
            ups_weight = weight + OUTPUTS * weight_stride
            fetch_early(ups_weight, columns, weight_stride, OUTPUTS, INPUTS, SPAN)
    await_inputs(EARLY)
    is_row, is_column = rows < count, columns < OUTPUTS
    x_places = x + rows[:, None] * x_stride + inputs[None, :]
    weight_places = weight + columns.to(tl.int64)[None, :] * weight_stride + inputs[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    ups = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS], tl.float32)
    for start in range(0, INPUTS, DEPTH):
        is_input = start + inputs < INPUTS
        is_factor = is_input[:, None] & is_column[None, :]
        values = tl.load(x_places + start, mask=is_row[:, None] & is_input[None, :], other=0.0)
        if HAS_NORM:
            values = values.to(tl.float32)
            squares += tl.sum(values * values, 1)
            gains = tl.load(gain + start + inputs, mask=is_input, other=0.0).to(tl.float32)
            values = values * gains[None, :]
        values = values.to(DTYPE)
        factors = tl.load(weight_places + start, mask=is_factor, other=0.0).to(DTYPE)
        total = tl.dot(values, factors, total, input_precision="ieee")
        if ACTIVATION != "":
            further = weight_places + OUTPUTS * weight_stride + start
            factors = tl.load(further, mask=is_factor, other=0.0).to(DTYPE)
            ups = tl.dot(values, factors, ups, input_precision="ieee")
    if HAS_NORM:
        scale = 1.0 / tl.sqrt(squares / INPUTS + eps)
        total = total * scale[:, None]
        ups = ups * scale[:, None]
    if HAS_BIAS:
        added = tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)
        total = total + added[None, :]
    if ACTIVATION != "":
        if HAS_BIAS:
            added = tl.load(bias + OUTPUTS + columns, mask=is_column, other=0.0).to(tl.float32)
            ups = ups + added[None, :]
        total = activated(total, ACTIVATION) * ups
    is_real = is_row[:, None] & is_column[None, :]
    places = rows[:, None] * out_stride + columns[None, :]
    if ADDS:
        total = total + tl.load(residual + places, mask=is_real, other=0.0).to(tl.float32)
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
) -> Tensor:
    """Return ``x @ weight.T + bias`` for ``x`` [rows, in], at most ``FEW_ROWS`` of them, and
    ``weight`` [out, in]: [rows, out] in x's dtype.

    ``norm``: of x, before. ``activation``: ``weight`` and ``bias`` are those of gate and up, and
    the result is activation(gate) * up, [rows, out / 2]. ``residual`` [rows, out]: the result is
    added to it in place, and it is returned.
    """
    rows, inputs = x.shape
    if rows > FEW_ROWS:
        raise ValueError(f"{rows} rows; at most {FEW_ROWS} are supported")
    outputs = weight.shape[0] // 2 if activation else weight.shape[0]
    tiles = SKINNY[x.dtype.itemsize]
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
        ROWS=tiles.rows,
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        HAS_BIAS=bias is not None,
        HAS_NORM=norm is not None,
        ADDS=residual is not None,
        ACTIVATION=activation,
        DTYPE=triton_type(dot_dtype(x.dtype)),
        SPAN=triton.next_power_of_2(tiles.depth * tiles.stages),
        **early_launch(),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out
