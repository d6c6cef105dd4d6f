"""Weights of few bits as kernels read them: words of codes, and scales of groups of inputs.

    weight[o, i] = scales[o, g] * (codes[o, i] - zeros[o, g]),  g = i // group

Inputs come in blocks of 32 words, eight inputs a word with 4 bits, four with 8. Slice k of a block
(32 adjacent inputs) is in bits ``k * BITS`` and up of its 32 words. So a slice of all words is
taken out by one mask, its inputs are adjacent, and they have one scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from engine.weights.grouped import GroupedWeight

WORD_BITS = 32
# Words of a block, and inputs of a slice.
SLICE = 32
# The bits of 1.0 as float32.
ONE = 0x3F800000
_FOUR, _EIGHT = 4, 8
# Bytes of a line of the L2 cache, which are also those of a block of words.
_LINE = tl.constexpr(128)
# Outputs that are packed at a time, which takes some bytes for each of their inputs.
_PART_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class FewBitWeight:
    """``words``: int32 [outputs, words], of codes of ``bits`` (4 or 8), stored as unsigned numbers:
    signed ones plus half of their range, or the bytes of E4M3 numbers with ``is_float``. Inputs are
    padded to whole blocks with codes of zero. ``scales`` [outputs, groups], and ``zeros`` in the
    same shape and dtype unless all are zero; ``group``: a multiple of 32."""

    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    group: int
    bits: int
    inputs: int
    is_float: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.words.shape[0], self.inputs

    @property
    def num_bytes(self) -> int:
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return self.words.nbytes + self.scales.nbytes + zeros


def packed_few_bits(weight: GroupedWeight, device: torch.device) -> FewBitWeight | None:
    """Return the same weight on ``device``; None if kernels cannot read it: if its groups are not
    multiples of 32 inputs, or if its minimums are not products of the scales and small numbers."""
    outputs, inputs = weight.shape
    if weight.group % SLICE or not outputs * inputs:
        return None
    scales = weight.scales.values().to(device)
    if weight.codes.dtype == torch.float8_e4m3fn:
        return packed_e4m3(weight.codes.to(device), scales, weight.group)
    zeros = None
    if weight.minimums is not None:
        minimums = weight.minimums.values().to(device)
        zeros = torch.where(scales == 0, 0.0, minimums / scales).round()
        if not torch.equal(zeros * scales, minimums):
            return None
        zeros = zeros if bool(zeros.any()) else None
    exact = _shortest(scales, zeros)
    codes = weight.codes.to(device)
    half = 1 << _FOUR - 1
    bits = _FOUR if -half <= int(codes.min()) and int(codes.max()) < half else _EIGHT
    return FewBitWeight(
        _words(codes, bits, 1 << bits - 1),
        scales.to(exact).contiguous(),
        None if zeros is None else zeros.to(exact).contiguous(),
        weight.group,
        bits,
        inputs,
    )


def packed_e4m3(codes: Tensor, scales: Tensor, group: int) -> FewBitWeight:
    """``codes``: float8_e4m3fn [outputs, inputs]; ``scales`` [outputs, groups]."""
    words = _words(codes.view(torch.uint8), _EIGHT, 0)
    kept = scales.to(_shortest(scales)).contiguous()
    return FewBitWeight(words, kept, None, group, _EIGHT, codes.shape[1], is_float=True)


def _shortest(*parts: Tensor | None) -> torch.dtype:
    """Return the shortest type that has all these numbers."""
    for dtype in (torch.float16, torch.bfloat16):
        if all(each is None or torch.equal(each.to(dtype).to(each.dtype), each) for each in parts):
            return dtype
    return torch.float32


def _words(codes: Tensor, bits: int, half: int) -> Tensor:
    """``codes`` [outputs, inputs], to which ``half`` is added."""
    outputs, inputs = codes.shape
    slices = WORD_BITS // bits
    blocks = -(-inputs // (slices * SLICE))
    words = torch.zeros(outputs, blocks, SLICE, dtype=torch.int32, device=codes.device)
    count = max(1, _PART_ELEMENTS // inputs)
    for part, goal in zip(codes.split(count), words.split(count), strict=True):
        wide = functional.pad(part.to(torch.int16), (0, blocks * slices * SLICE - inputs)) + half
        by_slice = wide.view(part.shape[0], blocks, slices, SLICE)
        for number in range(slices):
            goal |= by_slice[:, :, number].to(torch.int32) << number * bits
    return words.view(outputs, -1)


@triton.jit
def slice_levels(
    words,
    one,
    NUMBER: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    RAISED: tl.constexpr = True,
):
    """Return slice ``NUMBER`` of ``words`` as float32 levels, of which codes are
    ``(level - slice_base) * slice_factor``.

    An integer is put into the first digits of a float32 number between 1 and 2: converting it would
    take a GPU as long as eight other instructions. ``one``: ``ONE``, which has to be in a register
    for a mask and an addition to be one instruction; a constant would not be. Without ``RAISED``,
    levels of floats are too small by 2 to the power of 120.
    """
    if IS_FLOAT:
        # Sign, exponent and mantissa to their places; the sign fills the rest of the exponent.
        moved = ((words << (24 - 8 * NUMBER)) >> 4) & -0x78100000
        levels = moved.to(tl.float32, bitcast=True)
        # Of the exponents' biases, 127 and 7.
        if RAISED:
            levels = levels * 1.329227995784916e36
        return levels
    else:
        # Bytes are moved to the first eight digits, and four bits from there are not moved again.
        PLACE: tl.constexpr = NUMBER * BITS // 8 * 8
        moved = words << (15 - PLACE) if PLACE < 15 else words >> (PLACE - 15)
        MASK: tl.constexpr = ((1 << BITS) - 1) << (15 + NUMBER * BITS % 8)
        return ((moved & MASK) | one).to(tl.float32, bitcast=True)


@triton.jit
def slice_factor(NUMBER: tl.constexpr, BITS: tl.constexpr, IS_FLOAT: tl.constexpr):
    """See ``slice_levels``. A power of two."""
    if IS_FLOAT:
        return 1.0
    else:
        return 256.0 / (1 << (NUMBER * BITS % 8))


@triton.jit
def slice_base(NUMBER: tl.constexpr, BITS: tl.constexpr, IS_FLOAT: tl.constexpr):
    """See ``slice_levels``. The level of a code of zero."""
    if IS_FLOAT:
        return 0.0
    else:
        return 1.0 + (1 << (BITS - 1 + NUMBER * BITS % 8)) / 256.0


@triton.jit
def fetch_early(start, rows, first, last, STRIDE: tl.constexpr, LINES: tl.constexpr):
    """Request ``LINES`` lines of each of ``rows``, from that of element ``first`` up to that of
    ``last``, so that they are in the L2 cache when they are read. A row that does not begin with a
    line may lack its last one. ``STRIDE``: elements of a row; ``LINES``: a power of two."""
    LINE: tl.constexpr = _LINE * 8 // start.dtype.element_ty.primitive_bitwidth
    places = tl.minimum(first + tl.arange(0, LINES) * LINE, last)
    sources = start + rows.to(tl.int64)[:, None] * STRIDE + places[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; // dummy $0",
        "=r,l",
        [sources.to(tl.int64, bitcast=True)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


def line_count(elements: int, tensor: Tensor) -> int:
    """Return the ``LINES`` of ``fetch_early`` that hold so many adjacent elements of ``tensor``."""
    return int(triton.next_power_of_2(triton.cdiv(elements * tensor.itemsize, _LINE.value)))


@triton.jit
def _dequantise(
    words,
    scales,
    zeros,
    out,
    one,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WORDS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
):
    """Write one block of some outputs."""
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    is_column = columns < OUTPUTS
    block, places = tl.program_id(0), tl.arange(0, 32)
    sources = words + columns[:, None] * WORDS + block * 32 + places[None, :]
    codes = tl.load(sources, mask=is_column[:, None], other=0)
    for number in tl.static_range(32 // BITS):
        first = (block * (32 // BITS) + number) * 32
        factor = slice_factor(number, BITS, IS_FLOAT)
        group = columns * GROUPS + tl.minimum(first // GROUP, GROUPS - 1)
        values = slice_levels(codes, one, number, BITS, IS_FLOAT)
        values = values - slice_base(number, BITS, IS_FLOAT)
        if HAS_ZEROS:
            zero = tl.load(zeros + group, mask=is_column, other=0.0).to(tl.float32)
            values = values - (zero / factor)[:, None]
        scale = tl.load(scales + group, mask=is_column, other=0.0).to(tl.float32)
        values = values * (scale * factor)[:, None]
        goals = out + columns[:, None] * INPUTS + first + places[None, :]
        is_real = is_column[:, None] & (first + places < INPUTS)[None, :]
        tl.store(goals, values.to(out.dtype.element_ty), mask=is_real)


def few_bits_to_floats(weight: FewBitWeight, dtype: torch.dtype) -> Tensor:
    """Return [outputs, inputs], each product rounded to float32 and then to ``dtype``."""
    outputs, inputs = weight.shape
    out = torch.empty(outputs, inputs, dtype=dtype, device=weight.words.device)
    columns = 32
    grid = (weight.words.shape[1] // SLICE, triton.cdiv(outputs, columns))
    _dequantise[grid](
        weight.words,
        weight.scales,
        weight.zeros,
        out,
        ONE,
        **constants(weight),
        OUTPUTS=outputs,
        COLUMNS=columns,
        num_warps=4,
    )
    return out


def constants(weight: FewBitWeight) -> dict[str, int | bool]:
    """Return what kernels need to know of a weight when they are compiled."""
    return {
        "INPUTS": weight.inputs,
        "WORDS": weight.words.shape[1],
        "GROUP": weight.group,
        "GROUPS": weight.scales.shape[1],
        "BITS": weight.bits,
        "IS_FLOAT": weight.is_float,
        "HAS_ZEROS": weight.zeros is not None,
    }
