"""Matrix products whose rows do not depend on each other, to the last bit.

Libraries choose tiles and splits of the sum by the number of rows, so that a row's result changes
with its batch. Here tiles are the same for any number of rows, and each sum is computed in one
program, in order ("batch invariance": He et al., "Defeating Nondeterminism in LLM Inference",
2025).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import MIN_ROWS, PRODUCT, dot_dtype, row_stride
from engine.gpu.kernels.types import triton_type


@triton.jit
def _product(
    x,
    weight,
    bias,
    out,
    count,
    x_stride,
    weight_stride,
    out_stride,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Compute one tile of ROWS x COLUMNS. Programs of the same columns are adjacent, so that a
    weight is read from memory once."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inputs = tl.arange(0, DEPTH)
    is_row, is_column = rows < count, columns < OUTPUTS
    x_places = x + rows.to(tl.int64)[:, None] * x_stride + inputs[None, :]
    weight_places = weight + columns.to(tl.int64)[None, :] * weight_stride + inputs[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, INPUTS, DEPTH):
        is_input = start + inputs < INPUTS
        values = tl.load(x_places + start, mask=is_row[:, None] & is_input[None, :], other=0.0).to(
            DTYPE
        )
        factors = tl.load(
            weight_places + start, mask=is_input[:, None] & is_column[None, :], other=0.0
        ).to(DTYPE)
        total = tl.dot(values, factors, total, input_precision="ieee")
    if HAS_BIAS:
        total = total + tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    places = out + rows.to(tl.int64)[:, None] * out_stride + columns[None, :]
    tl.store(places, total.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return ``x @ weight.T + bias``, [rows, out] in x's dtype, in ``out`` if given. ``x``
    [rows, in], ``weight`` [out, in], ``bias`` [out]. A row's result is the same to the bit whatever
    the other rows are and however many."""
    count, inputs = x.shape
    outputs = weight.shape[0]
    tiles = PRODUCT[x.dtype.itemsize]
    if out is None:
        out = torch.empty(count, outputs, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(max(count, MIN_ROWS), tiles.rows), triton.cdiv(outputs, tiles.columns))
    _product[grid](
        x,
        weight,
        bias,
        out,
        count,
        row_stride(x),
        row_stride(weight),
        row_stride(out),
        INPUTS=inputs,
        OUTPUTS=outputs,
        ROWS=tiles.rows,
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        HAS_BIAS=bias is not None,
        DTYPE=triton_type(dot_dtype(x.dtype)),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out
