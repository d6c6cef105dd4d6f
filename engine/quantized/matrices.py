"""A quantized matrix: codes, and the scales and zero points that several of them share.

    weight[o, i] = scales[o // rows, i // columns] * (codes[o, i] - zeros[o // rows, i // columns])

Every format is that, and only says where it keeps the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.weights.grouped import GroupedWeight, Scales

# Codes that are decoded at a time, which takes a few times as much memory for a moment.
_PIECE_ELEMENTS = 1 << 20
# Inputs of a group that our kernels read: as many or a multiple.
_UNIT = 16
_WHOLE_UNIT = 32
_SIGNED_BITS = 8


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """``codes(first, last)``: those of some outputs [outputs, inputs], int8 of so many ``bits``, or
    floats if that is None. ``scales``: float32 [parts of outputs, parts of inputs]. ``zeros``:
    int16 in the same shape, around zero as the codes are; None: all zero. ``rows``, ``columns``: of
    a part. ``order``: the part of each input, where parts are not runs of inputs."""

    outputs: int
    inputs: int
    codes: Callable[[int, int], Tensor]
    bits: int | None
    scales: Tensor
    zeros: Tensor | None
    rows: int
    columns: int
    order: Tensor | None = None

    def dequantise(self, into: Tensor) -> None:
        """Write the weights into [outputs, inputs], each product rounded to float32, and then to
        the dtype there."""
        for first, last in self._pieces():
            codes = self.codes(first, last)
            if self.zeros is not None:
                codes = codes - self._spread(self.zeros, first, last)
            into[first:last] = codes.float().mul_(self._spread(self.scales, first, last))

    def grouped(self) -> GroupedWeight | None:
        """Return the same weights as integers of at most 8 bits with their scales; None if they are
        not exactly that, in groups of adjacent inputs of which our kernels read several."""
        if self.bits is None or self.order is not None or not self._is_in_groups_of(_UNIT):
            return None
        zeros: Tensor | None = self.zeros
        minimums: Tensor | None = None
        if zeros is not None and _is_short(self.scales):
            # The products of zero points and scales are exact then.
            minimums = self._by_output(self.scales * zeros)
            zeros = None
        elif zeros is not None and self.bits == _SIGNED_BITS:
            return None  # the differences have 9 bits
        codes = torch.empty(self.outputs, self.inputs, dtype=torch.int8)
        for first, last in self._pieces():
            piece = self.codes(first, last)
            codes[first:last] = piece if zeros is None else piece - self._spread(zeros, first, last)
        return GroupedWeight(
            codes,
            Scales(self._by_output(self.scales)),
            None if minimums is None else Scales(minimums),
            self._group,
        )

    def float8(self) -> GroupedWeight | None:
        """Return the same weights as E4M3 numbers with their scales; None if they are not exactly
        that, in groups of adjacent inputs of which our kernels read several."""
        if self.bits is not None or not self._is_in_groups_of(_WHOLE_UNIT):
            return None
        codes = self.codes(0, self.outputs)
        if codes.dtype != torch.float8_e4m3fn or bool(codes.isnan().any()):
            return None
        return GroupedWeight(codes, Scales(self._by_output(self.scales)), None, self._group)

    def _is_in_groups_of(self, unit: int) -> bool:
        """True if groups have a multiple of ``unit`` inputs, or all of an output's."""
        return self.columns % unit == 0 or self.columns >= self.inputs

    @property
    def _group(self) -> int:
        if self.columns < self.inputs:
            return self.columns
        return -(-self.inputs // _WHOLE_UNIT) * _WHOLE_UNIT

    def _by_output(self, parts: Tensor) -> Tensor:
        return self._parts(parts, 0, self.outputs).contiguous()

    def _pieces(self) -> Iterator[tuple[int, int]]:
        count = max(1, _PIECE_ELEMENTS // max(1, self.inputs))
        for first in range(0, self.outputs, count):
            yield first, min(first + count, self.outputs)

    def _parts(self, parts: Tensor, first: int, last: int) -> Tensor:
        """[parts of outputs, parts of inputs] to [outputs, parts of inputs]."""
        if self.rows == 1:
            return parts[first:last]
        return parts.index_select(0, torch.arange(first, last) // self.rows)

    def _spread(self, parts: Tensor, first: int, last: int) -> Tensor:
        """[parts of outputs, parts of inputs] to what broadcasts to [outputs, inputs]."""
        own = self._parts(parts, first, last)
        if self.order is not None:
            return own.index_select(1, self.order)
        if own.shape[1] == 1:
            return own
        return own.repeat_interleave(self.columns, 1)[:, : self.inputs]


def _is_short(scales: Tensor) -> bool:
    """True if their products with integers of 9 bits are float32 numbers: they have half of the
    digits of one."""
    return bool(((scales.half().float() == scales) | (scales.bfloat16().float() == scales)).all())
