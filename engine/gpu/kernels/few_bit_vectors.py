"""Products of one to four rows with weights of few bits, with the norm before, and the gate or the
residual after in the same launch: ``engine.gpu.kernels.skinny`` for such weights.

Each thread reads four words of a few outputs at a time, and multiplies without tensor cores. The
words of the next tile are requested before those of this one are used, the first ones before the
kernel before has ended. So are the scales, as far as the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.activation import activated
from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.few_bits import (
    ONE,
    FewBitWeight,
    constants,
    fetch_early,
    line_count,
    slice_base,
    slice_factor,
    slice_levels,
)
from engine.gpu.kernels.launch import (
    FEW_ROWS,
    VectorTiles,
    early_launch,
    row_stride,
    vector_tiles,
)
from engine.gpu.kernels.skinny import Norm

# Levels of floats are too small by 2 to the power of 120, which would be an instruction a weight.
# Inputs are raised by 100 of it, as far as they can be, and sums by what is left.
_RAISED = tl.constexpr(2.0**100)
_LEFT = tl.constexpr(2.0**20)
# Which of the other dimensions triton spreads over threads first: up to 3.7 the first, later the
# last.
_TURNS_FIRST = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8)


@triton.jit
def _row_slice(
    total,
    squares,
    x,
    gains,
    levels,
    scale,
    base,
    is_input,
    HAS_NORM: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add to a row's ``total`` the products of a slice, and to ``squares`` those of its inputs
    ``x`` with themselves."""
    if MASKED:
        values = tl.load(x, mask=is_input, other=0.0).to(tl.float32)
    else:
        values = tl.load(x).to(tl.float32)
    if HAS_NORM:
        squares += tl.sum(values * values, 2)
        values = values * gains
    if IS_FLOAT:
        values = values * _RAISED
    sums = tl.sum(levels * values, 2)
    if not IS_FLOAT:
        sums -= base * tl.sum(values, 2)
    return total + sums * scale, squares


@triton.jit
def _along(own, turns, TURNS_FIRST: tl.constexpr):
    """Return [THREADS] and [TURNS] as they broadcast to [THREADS, TURNS], or the reverse."""
    if TURNS_FIRST:
        return own[None, :], turns[:, None]
    else:
        return own[:, None], turns[None, :]


@triton.jit
def _by_column(
    x,
    TURNS: tl.constexpr,
    OWN: tl.constexpr,
    LANES: tl.constexpr,
    TURNS_FIRST: tl.constexpr,
):
    """Return the sums of the lanes: [OWN, TURNS], or the reverse."""
    if TURNS_FIRST:
        return tl.sum(tl.reshape(x, [TURNS, OWN, LANES]), 2)
    else:
        return tl.sum(tl.reshape(x, [OWN, LANES, TURNS]), 1)


@triton.jit
def _finished(
    total,
    squares,
    row,
    weight_rows,
    places,
    is_real,
    bias,
    residual,
    out,
    out_stride,
    eps,
    INPUTS: tl.constexpr,
    TURNS: tl.constexpr,
    OWN: tl.constexpr,
    LANES: tl.constexpr,
    TURNS_FIRST: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    ADDS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Store a row's results."""
    result = _by_column(total, TURNS, OWN, LANES, TURNS_FIRST)
    if HAS_NORM:
        norms = tl.sum(_by_column(squares, 1, OWN, LANES, TURNS_FIRST), 0 if TURNS_FIRST else 1)
        norms = 1.0 / tl.sqrt(norms / INPUTS + eps)
        result = result * (norms[None, :] if TURNS_FIRST else norms[:, None])
    if HAS_BIAS:
        result = result + tl.load(bias + weight_rows).to(tl.float32)
    if ACTIVATION != "":
        half = tl.arange(0, 2)
        if TURNS_FIRST:
            result = tl.reshape(result, [2, TURNS // 2, OWN])
            is_gate = half[:, None, None] == 0
        else:
            result = tl.reshape(result, [OWN, 2, TURNS // 2])
            is_gate = half[None, :, None] == 0
        axis: tl.constexpr = 0 if TURNS_FIRST else 1
        gate = tl.sum(tl.where(is_gate, result, 0.0), axis)
        up = tl.sum(tl.where(is_gate, 0.0, result), axis)
        result = activated(gate, ACTIVATION) * up
    places = row * out_stride + places
    if ADDS:
        result = result + tl.load(residual + places, mask=is_real, other=0.0).to(tl.float32)
        tl.store(residual + places, result.to(residual.dtype.element_ty), mask=is_real)
    else:
        tl.store(out + places, result.to(out.dtype.element_ty), mask=is_real)


@triton.jit
def _few_bit_vectors(  # noqa: C901 - what it leaves out is decided when it is compiled
    x,
    words,
    scales,
    zeros,
    bias,
    gain,
    residual,
    out,
    count,
    x_stride,
    out_stride,
    eps,
    one,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WORDS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    ROWS: tl.constexpr,
    TURNS: tl.constexpr,
    OWN: tl.constexpr,
    LANES: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    ADDS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    EARLY: tl.constexpr,
    LINES: tl.constexpr,
    TURNS_FIRST: tl.constexpr,
):
    """Compute all rows of TURNS x OWN columns: each thread has TURNS of them. Tiles of words are
    [threads, TURNS, 4], and those of inputs [threads, 1, 4], so that they lie in the same threads,
    and nothing passes through shared memory. With ``ACTIVATION``, ``OUTPUTS`` is half of the
    weight's, and the first half of a thread's columns are gates, the others their ups.
    """
    SLICES: tl.constexpr = 32 // BITS
    BLOCK: tl.constexpr = 32 * SLICES
    STEP: tl.constexpr = 4 * LANES
    MASKED: tl.constexpr = INPUTS % (STEP * SLICES) != 0
    THREADS: tl.constexpr = OWN * LANES
    # Each thread's column, and again of those that are stored.
    thread, turn = _along(tl.arange(0, THREADS), tl.arange(0, TURNS), TURNS_FIRST)
    column, stored_turn = _along(tl.arange(0, OWN), tl.arange(0, TURNS), TURNS_FIRST)
    if ACTIVATION != "":
        HALF: tl.constexpr = TURNS // 2
        first_column = tl.program_id(0) * (OWN * HALF)
        weight_rows = tl.minimum(first_column + turn % HALF * OWN + thread // LANES, OUTPUTS - 1)
        weight_rows = weight_rows + turn // HALF * OUTPUTS
        bias_rows = tl.minimum(first_column + stored_turn % HALF * OWN + column, OUTPUTS - 1)
        bias_rows = bias_rows + stored_turn // HALF * OUTPUTS
        own_column, own_turn = _along(tl.arange(0, OWN), tl.arange(0, HALF), TURNS_FIRST)
        places = first_column + own_turn * OWN + own_column
    else:
        first_column = tl.program_id(0) * (OWN * TURNS)
        weight_rows = tl.minimum(first_column + turn * OWN + thread // LANES, OUTPUTS - 1)
        places = first_column + stored_turn * OWN + column
        bias_rows = tl.minimum(places, OUTPUTS - 1)
    is_real = places < OUTPUTS
    lanes = thread % LANES
    quarters = tl.arange(0, 4)[None, None, :]
    word_places = lanes[:, :, None] * 4 + quarters
    sources = words + weight_rows.to(tl.int64)[:, :, None] * WORDS + word_places
    if MASKED:  # noqa: SIM108
        later = tl.load(sources, mask=word_places < WORDS, other=0)
    else:
        later = tl.load(sources)
    if EARLY:
        rows_read = tl.reshape(bias_rows, [TURNS * OWN])
        fetch_early(scales, rows_read, 0, GROUPS - 1, GROUPS, LINES)
        if HAS_ZEROS:
            fetch_early(zeros, rows_read, 0, GROUPS - 1, GROUPS, LINES)
    await_inputs(EARLY)
    # Of a lane's first word in the block, of which each slice has one input for each word.
    inputs = (lanes // 8 * BLOCK + lanes % 8 * 4)[:, :, None] + quarters
    total0 = tl.zeros([TURNS, THREADS] if TURNS_FIRST else [THREADS, TURNS], tl.float32)
    squares0 = tl.zeros([1, THREADS] if TURNS_FIRST else [THREADS, 1], tl.float32)
    total1, total2, total3 = total0, total0, total0
    squares1, squares2, squares3 = squares0, squares0, squares0
    row1 = tl.minimum(1, count - 1) * x_stride
    row2 = tl.minimum(2, count - 1) * x_stride
    row3 = tl.minimum(3, count - 1) * x_stride
    group_places = weight_rows.to(tl.int64) * GROUPS
    for start in range(0, WORDS, STEP):
        now = later
        if MASKED:
            is_word = start + STEP + word_places < WORDS
            later = tl.load(sources + (start + STEP), mask=is_word, other=0)
        else:
            later = tl.load(sources + (start + STEP), mask=start + STEP < WORDS, other=0)
        block = start // 32 + lanes // 8
        for number in tl.static_range(SLICES):
            factor = _LEFT if IS_FLOAT else slice_factor(number, BITS, IS_FLOAT)
            levels = slice_levels(now, one, number, BITS, IS_FLOAT, RAISED=False)
            if number * 32 % GROUP == 0 or BLOCK % GROUP != 0:
                if BLOCK % GROUP == 0:
                    group = block * (BLOCK // GROUP) + number * 32 // GROUP
                else:
                    group = (block * BLOCK + number * 32) // GROUP
                if MASKED:
                    group = tl.minimum(group, GROUPS - 1)
                read_scale = tl.load(scales + group_places + group).to(tl.float32)
                if HAS_ZEROS:
                    read_zero = tl.load(zeros + group_places + group).to(tl.float32)
            scale = read_scale * factor
            base = slice_base(number, BITS, IS_FLOAT)
            if HAS_ZEROS:
                base = base + read_zero * (1.0 / factor)
            at = (start * SLICES + number * 32) + inputs
            is_input = at < INPUTS
            gains = 0.0
            if HAS_NORM:
                if MASKED:
                    gains = tl.load(gain + at, mask=is_input, other=0.0).to(tl.float32)
                else:
                    gains = tl.load(gain + at).to(tl.float32)
            total0, squares0 = _row_slice(
                *(total0, squares0, x + at, gains, levels, scale, base, is_input),
                *(HAS_NORM, IS_FLOAT, MASKED),
            )
            if ROWS > 1:
                total1, squares1 = _row_slice(
                    *(total1, squares1, x + row1 + at, gains, levels, scale, base, is_input),
                    *(HAS_NORM, IS_FLOAT, MASKED),
                )
            if ROWS > 2:
                total2, squares2 = _row_slice(
                    *(total2, squares2, x + row2 + at, gains, levels, scale, base, is_input),
                    *(HAS_NORM, IS_FLOAT, MASKED),
                )
                total3, squares3 = _row_slice(
                    *(total3, squares3, x + row3 + at, gains, levels, scale, base, is_input),
                    *(HAS_NORM, IS_FLOAT, MASKED),
                )
    _finished(
        *(total0, squares0, 0, bias_rows, places, is_real, bias, residual, out, out_stride, eps),
        *(INPUTS, TURNS, OWN, LANES, TURNS_FIRST, HAS_BIAS, HAS_NORM, ADDS, ACTIVATION),
    )
    if ROWS > 1:
        _finished(
            *(total1, squares1, 1, bias_rows, places, is_real & (count > 1)),
            *(bias, residual, out, out_stride, eps),
            *(INPUTS, TURNS, OWN, LANES, TURNS_FIRST, HAS_BIAS, HAS_NORM, ADDS, ACTIVATION),
        )
    if ROWS > 2:
        _finished(
            *(total2, squares2, 2, bias_rows, places, is_real & (count > 2)),
            *(bias, residual, out, out_stride, eps),
            *(INPUTS, TURNS, OWN, LANES, TURNS_FIRST, HAS_BIAS, HAS_NORM, ADDS, ACTIVATION),
        )
        _finished(
            *(total3, squares3, 3, bias_rows, places, is_real & (count > 3)),
            *(bias, residual, out, out_stride, eps),
            *(INPUTS, TURNS, OWN, LANES, TURNS_FIRST, HAS_BIAS, HAS_NORM, ADDS, ACTIVATION),
        )


def few_bit_vectors(
    x: Tensor,
    weight: FewBitWeight,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    tiles: VectorTiles | None = None,
) -> Tensor:
    """See ``engine.gpu.kernels.skinny.skinny_product``; of at most ``FEW_ROWS`` rows. ``tiles``:
    others than the table's."""
    rows, _ = x.shape
    if rows > FEW_ROWS:
        raise ValueError(f"{rows} rows; at most {FEW_ROWS} are supported")
    outputs = weight.shape[0] // 2 if activation else weight.shape[0]
    if tiles is None:
        bits = -8 if weight.is_float else weight.bits
        tiles = vector_tiles(rows, weight.inputs, weight.shape[0], bits, weight.group)
    out = residual
    if out is None:
        out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    own = tiles.warps * 32 // tiles.lanes
    turns = max(2, tiles.turns) if activation else tiles.turns
    _few_bit_vectors[(triton.cdiv(weight.shape[0], own * turns),)](
        x,
        weight.words,
        weight.scales,
        weight.zeros,
        bias,
        None if norm is None else norm.gain,
        residual,
        out,
        rows,
        row_stride(x),
        row_stride(out),
        0.0 if norm is None else norm.eps,
        ONE,
        **constants(weight),
        OUTPUTS=outputs,
        ROWS=triton.next_power_of_2(rows),
        TURNS=turns,
        OWN=own,
        LANES=tiles.lanes,
        HAS_BIAS=bias is not None,
        HAS_NORM=norm is not None,
        ADDS=residual is not None,
        ACTIVATION=activation,
        LINES=line_count(weight.scales.shape[1], weight.scales),
        TURNS_FIRST=_TURNS_FIRST,
        **early_launch(),
        num_warps=tiles.warps,
    )
    return out
