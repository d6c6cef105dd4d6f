"""Products of two to a few dozen rows with weights of few bits that have no zero points.

Codes are exact in 16 bits, so they are multiplied on the tensor cores as they are, and each group's
sums by its scale afterwards: a scale costs an instruction for every sum, not for every weight. Two
codes at a time become bfloat16 by four instructions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.few_bits import (
    ONE,
    SLICE,
    FewBitWeight,
    constants,
    fetch_early,
    line_count,
    slice_base,
    slice_factor,
    slice_levels,
)
from engine.gpu.kernels.launch import (
    INTERPRETED,
    DotTiles,
    dot_dtype,
    dot_tiles,
    early_launch,
    merge_counters,
    num_sms,
    row_stride,
)
from engine.gpu.kernels.types import triton_type


@triton.jit
def _codes(
    words,
    one,
    NUMBER: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    PAIRS: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Return the codes of slice ``NUMBER`` as numbers. ``PAIRS``: by instructions for two adjacent
    words at a time, unless codes are integers of 8 bits."""
    if PAIRS and (BITS == 4 or IS_FLOAT):
        # Their bytes are put into the halves of a register, where their bits become those of
        # bfloat16 numbers. A float keeps its sign, and is multiplied by 2 to the power of 120 (see
        # ``slice_levels``). An integer's four bits become the lowest bits of a number that begins
        # at 128; then 136 is subtracted.
        BYTES: tl.constexpr = ("0x4400", "0x5511", "0x6622", "0x7733")[NUMBER * BITS // 8]
        MASK: tl.constexpr = "0x07F007F0" if IS_FLOAT else "0x000F000F"
        REST: tl.constexpr = "and.b32 s, t, 0x80008000" if IS_FLOAT else "mov.b32 s, 0x43004300"
        SHIFT: tl.constexpr = "4" if IS_FLOAT or NUMBER % 2 else "0"
        FACTOR: tl.constexpr = "0x7B807B80" if IS_FLOAT else "0x3F803F80"
        ADDED: tl.constexpr = "0x80008000" if IS_FLOAT else "0xC308C308"
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t, s, a, b;"
            " prmt.b32 t, $1, $2, " + BYTES + "; " + REST + "; shr.b32 t, t, " + SHIFT + ";"
            " lop3.b32 t, t, " + MASK + ", s, 0xEA;"
            " mov.b32 a, " + FACTOR + "; mov.b32 b, " + ADDED + "; fma.rn.bf16x2 $0, t, a, b; }",
            "=r,r,r",
            [words],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        levels = slice_levels(words, one, NUMBER, BITS, IS_FLOAT)
        if not IS_FLOAT:
            base = slice_base(NUMBER, BITS, IS_FLOAT)
            levels = (levels - base) * slice_factor(NUMBER, BITS, IS_FLOAT)
        return levels.to(DTYPE)


# The number of rows changes while serving, where nothing is to be compiled.
@triton.jit(do_not_specialize=["count"])
def _few_bit_dots(  # noqa: C901 - what it leaves out is decided when it is compiled
    x,
    words,
    scales,
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
    HAS_BIAS: tl.constexpr,
    PAIRS: tl.constexpr,
    EARLY: tl.constexpr,
    LINES: tl.constexpr,
    DTYPE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute one tile of ROWS x COLUMNS from one of ``SHARES`` shares of the inputs. Its weights
    are the left operand, which tensor cores take from registers."""
    SLICES: tl.constexpr = 32 // BITS
    BLOCK: tl.constexpr = 32 * SLICES
    BLOCKS: tl.constexpr = WORDS // 32
    SHARE: tl.constexpr = (BLOCKS + SHARES - 1) // SHARES
    # How many slices are added up before they are scaled.
    OTHERWISE: tl.constexpr = SLICES if GROUP % BLOCK == 0 else 1
    PERIOD: tl.constexpr = GROUP // 32 if BLOCK % GROUP == 0 else OTHERWISE
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < count, columns < OUTPUTS
    weight_rows = tl.minimum(columns, OUTPUTS - 1).to(tl.int64)
    begin = tl.program_id(2) * SHARE
    end = tl.minimum(begin + SHARE, BLOCKS)
    if EARLY:
        # A last share without blocks requests the row's last one again.
        fetch_early(words, weight_rows, begin * 32, end * 32 - 32, WORDS, LINES)
    await_inputs(EARLY)
    places = tl.arange(0, 32)
    sources = words + weight_rows[:, None] * WORDS + places[None, :]
    x_places = x + rows.to(tl.int64)[None, :] * x_stride + places[:, None]
    scale_places = scales + weight_rows * GROUPS
    total = tl.zeros([COLUMNS, ROWS], tl.float32)
    for block in tl.range(begin, end, num_stages=STAGES):
        codes = tl.load(sources + block * 32)
        x_block = x_places + block * BLOCK
        for period in tl.static_range(SLICES // PERIOD):
            part = total if GROUPS == 1 else tl.zeros([COLUMNS, ROWS], tl.float32)
            for place in tl.static_range(PERIOD):
                first = (period * PERIOD + place) * 32
                factors = _codes(codes, one, period * PERIOD + place, BITS, IS_FLOAT, PAIRS, DTYPE)
                if INPUTS % BLOCK == 0:
                    values = tl.load(x_block + first, mask=is_row[None, :], other=0.0)
                else:
                    is_input = (block * BLOCK + first + places < INPUTS)[:, None] & is_row[None, :]
                    values = tl.load(x_block + first, mask=is_input, other=0.0)
                part = tl.dot(factors, values.to(DTYPE), part, input_precision="ieee")
            if GROUPS == 1:
                total = part
            else:
                if INPUTS % BLOCK == 0 and BLOCK % GROUP == 0:
                    group = scale_places + block * (BLOCK // GROUP) + period
                else:
                    group = (block * BLOCK + period * (PERIOD * 32)) // GROUP
                    group = scale_places + tl.minimum(group, GROUPS - 1)
                total += part * tl.load(group).to(tl.float32)[:, None]
    if GROUPS == 1:
        total = total * tl.load(scale_places).to(tl.float32)[:, None]
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
            for share in tl.static_range(SHARES):
                total += tl.load(parts + share * size, mask=is_real, other=0.0)
    if is_last:
        if HAS_BIAS:
            total = total + tl.load(bias + weight_rows).to(tl.float32)[:, None]
        goals = out + rows.to(tl.int64)[None, :] * out_stride + columns[:, None]
        tl.store(goals, total.to(out.dtype.element_ty), mask=is_real)


def few_bit_dots(
    x: Tensor,
    weight: FewBitWeight,
    bias: Tensor | None = None,
    *,
    tiles: DotTiles | None = None,
) -> Tensor:
    """See ``engine.gpu.kernels.few_bit_product.few_bit_product``; of weights without zero points.
    ``tiles``: others than the table's."""
    rows, inputs = x.shape
    outputs, _ = weight.shape
    if tiles is None:
        bits = -8 if weight.is_float else weight.bits
        tiles = dot_tiles(rows, inputs, outputs, bits, weight.group, num_sms(x.device))
    grid = (triton.cdiv(rows, tiles.rows), triton.cdiv(outputs, tiles.columns))
    blocks = weight.words.shape[1] // SLICE
    shares = min(tiles.shares, blocks)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    partial, finished = None, None
    if shares > 1:
        partial = torch.empty(shares, rows, outputs, dtype=torch.float32, device=x.device)
        finished = merge_counters(x.device, grid[0] * grid[1])
    known = constants(weight)
    del known["HAS_ZEROS"]
    _few_bit_dots[(*grid, shares)](
        x,
        weight.words,
        weight.scales,
        bias,
        out,
        partial,
        finished,
        rows,
        row_stride(x),
        row_stride(out),
        ONE,
        **known,
        OUTPUTS=outputs,
        SHARES=shares,
        ROWS=tiles.rows,
        COLUMNS=tiles.columns,
        HAS_BIAS=bias is not None,
        PAIRS=not INTERPRETED and x.dtype == torch.bfloat16,
        LINES=line_count(triton.cdiv(blocks, shares) * SLICE, weight.words),
        DTYPE=triton_type(dot_dtype(x.dtype)),
        STAGES=tiles.stages,
        **early_launch(),
        num_warps=tiles.warps,
    )
    return out
