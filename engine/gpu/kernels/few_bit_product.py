"""Products of any number of rows with weights of few bits.

Up to ``MOST_CONVERTED_ROWS`` rows the weights are converted in registers, on their way to the
tensor cores. Few rows leave too few programs for a device, so several share a tile's inputs, and
the last of them to finish adds up their sums, in order. With more rows the matrix is converted as a
whole and multiplied by torch: the rows' products then take several times as long as that.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear

from engine.gpu.kernels.few_bit_dots import few_bit_dots
from engine.gpu.kernels.few_bits import (
    ONE,
    SLICE,
    FewBitWeight,
    constants,
    few_bits_to_floats,
    slice_base,
    slice_factor,
    slice_levels,
)
from engine.gpu.kernels.launch import (
    FEW_BIT_PRODUCT,
    MOST_DOT_ROWS,
    ProductTiles,
    dot_dtype,
    merge_counters,
    num_sms,
    row_stride,
    shared_memory,
)
from engine.gpu.kernels.types import triton_type

MOST_CONVERTED_ROWS = 512
# Programs that should run on each multiprocessor, and blocks that each of them should have.
_PROGRAMS_PER_SM = 3
_FEWEST_BLOCKS = 4
# Bytes of shared memory that the largest tile takes, with 4-bit weights and 16-bit inputs. The next
# one fits the 99 KiB of today's smaller devices.
_SHARED_OF_LARGEST = 176 << 10
_NEXT_TO_LARGEST = 64


@triton.jit
def _one_slice(
    words,
    one,
    scales,
    zeros,
    group_places,
    first,
    NUMBER: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Return the weights [COLUMNS, 32] of a slice. ``first``: the number of its block's first."""
    factor = slice_factor(NUMBER, BITS, IS_FLOAT)
    group = group_places + tl.minimum((first + NUMBER) * 32 // GROUP, GROUPS - 1)
    scale = tl.load(scales + group).to(tl.float32) * factor
    base = slice_base(NUMBER, BITS, IS_FLOAT)
    if HAS_ZEROS:
        base = base + tl.load(zeros + group).to(tl.float32) * (1.0 / factor)
    weights = slice_levels(words, one, NUMBER, BITS, IS_FLOAT) * scale[:, None]
    if not IS_FLOAT:
        weights = weights - (base * scale)[:, None]
    return weights.to(DTYPE)


@triton.jit
def _four_slices(
    words,
    one,
    scales,
    zeros,
    group_places,
    first,
    NUMBER: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Return the weights [COLUMNS, 128] of four adjacent slices, in the order of their inputs."""
    slice0 = _one_slice(
        *(words, one, scales, zeros, group_places, first, NUMBER),
        *(GROUP, GROUPS, BITS, IS_FLOAT, HAS_ZEROS, DTYPE),
    )
    slice1 = _one_slice(
        *(words, one, scales, zeros, group_places, first, NUMBER + 1),
        *(GROUP, GROUPS, BITS, IS_FLOAT, HAS_ZEROS, DTYPE),
    )
    slice2 = _one_slice(
        *(words, one, scales, zeros, group_places, first, NUMBER + 2),
        *(GROUP, GROUPS, BITS, IS_FLOAT, HAS_ZEROS, DTYPE),
    )
    slice3 = _one_slice(
        *(words, one, scales, zeros, group_places, first, NUMBER + 3),
        *(GROUP, GROUPS, BITS, IS_FLOAT, HAS_ZEROS, DTYPE),
    )
    # [COLUMNS, 32, second bit of the slice's number, first bit]
    joined = tl.join(tl.join(slice0, slice2), tl.join(slice1, slice3))
    return tl.reshape(tl.permute(joined, (0, 2, 3, 1)), [COLUMNS, 128])


# The number of rows changes while serving, where nothing is to be compiled.
@triton.jit(do_not_specialize=["count"])
def _few_bit_product(
    x,
    words,
    scales,
    zeros,
    bias,
    out,
    partial,
    finished,
    count,
    x_stride,
    out_stride,
    one,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WORDS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    SHARES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Compute one tile of ROWS x COLUMNS from one of ``SHARES`` shares of the inputs. Its weights
    are the left operand, which tensor cores take from registers."""
    SLICES: tl.constexpr = 32 // BITS
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < count, columns < OUTPUTS
    weight_rows = tl.minimum(columns, OUTPUTS - 1).to(tl.int64)
    places = tl.arange(0, 128)
    sources = words + weight_rows[:, None] * WORDS + tl.arange(0, 32)[None, :]
    x_places = x + rows.to(tl.int64)[None, :] * x_stride + places[:, None]
    group_places = weight_rows * GROUPS
    total = tl.zeros([COLUMNS, ROWS], tl.float32)
    SHARE: tl.constexpr = (WORDS // 32 + SHARES - 1) // SHARES
    begin = tl.program_id(2) * SHARE
    for block in range(begin, tl.minimum(begin + SHARE, WORDS // 32)):
        codes = tl.load(sources + block * 32)
        for four in tl.static_range(SLICES // 4):
            factors = _four_slices(
                *(codes, one, scales, zeros, group_places, block * SLICES, 4 * four),
                *(GROUP, GROUPS, BITS, IS_FLOAT, COLUMNS, HAS_ZEROS, DTYPE),
            )
            first = (block * SLICES + 4 * four) * 32
            is_input = first + places < INPUTS
            values = tl.load(x_places + first, mask=is_input[:, None] & is_row[None, :], other=0.0)
            total = tl.dot(factors, values.to(DTYPE), total, input_precision="ieee")
    is_real = is_column[:, None] & is_row[None, :]
    is_last = True
    if SHARES > 1:
        parts = partial + rows.to(tl.int64)[None, :] * OUTPUTS + columns[:, None]
        size = count.to(tl.int64) * OUTPUTS
        tl.store(parts + tl.program_id(2) * size, total, mask=is_real)
        tl.debug_barrier()  # all threads have written before one of them counts
        counter = finished + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        is_last = tl.atomic_add(counter, 1, sem="acq_rel") == SHARES - 1
        if is_last:
            tl.store(counter, 0)
            total = tl.zeros([COLUMNS, ROWS], tl.float32)
            for share in range(SHARES):
                total += tl.load(parts + share * size, mask=is_real, other=0.0)
    if is_last:
        if HAS_BIAS:
            total = total + tl.load(bias + weight_rows).to(tl.float32)[:, None]
        goals = out + rows.to(tl.int64)[None, :] * out_stride + columns[:, None]
        tl.store(goals, total.to(out.dtype.element_ty), mask=is_real)


def few_bit_product(
    x: Tensor,
    weight: FewBitWeight,
    bias: Tensor | None = None,
    *,
    tiles: ProductTiles | None = None,
    shares: int | None = None,
) -> Tensor:
    """Return ``x @ weight.T + bias``, [rows, out] in x's dtype, for ``x`` [rows, in]. ``tiles``,
    ``shares``: others than the table's, and than the device's size suggests."""
    rows, _ = x.shape
    if rows > MOST_CONVERTED_ROWS:
        return linear(x, few_bits_to_floats(weight, x.dtype), bias)
    if (
        rows <= MOST_DOT_ROWS
        and weight.zeros is None
        and x.dtype == torch.bfloat16
        and tiles is None
        and shares is None
    ):
        return few_bit_dots(x, weight, bias)
    outputs, _ = weight.shape
    if tiles is None:
        most = _most_rows(x)
        tiles = FEW_BIT_PRODUCT[min(most, max(16, triton.next_power_of_2(rows)))]
    grid = (triton.cdiv(rows, tiles.rows), triton.cdiv(outputs, tiles.columns))
    if shares is None:
        shares = _shares(grid[0] * grid[1], weight.words.shape[1] // SLICE, num_sms(x.device))
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    partial, finished = None, None
    if shares > 1:
        partial = torch.empty(shares, rows, outputs, dtype=torch.float32, device=x.device)
        finished = merge_counters(x.device, grid[0] * grid[1])
    _few_bit_product[(*grid, shares)](
        x,
        weight.words,
        weight.scales,
        weight.zeros,
        bias,
        out,
        partial,
        finished,
        rows,
        row_stride(x),
        row_stride(out),
        ONE,
        **constants(weight),
        OUTPUTS=outputs,
        SHARES=shares,
        ROWS=tiles.rows,
        COLUMNS=tiles.columns,
        HAS_BIAS=bias is not None,
        DTYPE=triton_type(dot_dtype(x.dtype)),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out


def _most_rows(x: Tensor) -> int:
    """Return the rows of the largest tile that fits the device's shared memory."""
    if x.dtype == torch.float32:
        return min(FEW_BIT_PRODUCT)
    fits = shared_memory(x.device) >= _SHARED_OF_LARGEST
    return max(FEW_BIT_PRODUCT) if fits else _NEXT_TO_LARGEST


def _shares(programs: int, blocks: int, sms: int) -> int:
    """Return a power of two."""
    shares = 1
    while programs * shares < _PROGRAMS_PER_SM * sms and blocks // (2 * shares) >= _FEWEST_BLOCKS:
        shares *= 2
    return shares
