"""Weights made small integers while they are loaded: as llama.cpp's Q8_0 and Q4_0, to the bit.

Symmetric, with a float16 scale for every ``GROUP`` inputs of an output. int8: the largest weight of
a group becomes 127 or -127. int4: the largest becomes -8, the others -8 to 7. So a weight is off by
at most half a scale with int8, and a scale with int4.

Or made E4M3 numbers, with a float32 scale for each output: its largest weight becomes 448 or -448.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional

from engine.weights.blocks import BlockRows, BlockSource
from engine.weights.grouped import GroupedWeight, Scales
from engine.weights.weights import WeightSource

Quantization = Literal["none", "int8", "int4", "fp8"]
QuantisedKind = Literal["int8", "int4", "fp8"]
Bits = Literal["int8", "int4"]

GROUP = 32
_MOST = 127
_LEAST = -8  # of four bits
_LARGEST = 448.0  # of E4M3


@runtime_checkable
class GroupedSource(Protocol):
    """A source that has some matrices in few bits."""

    def tensor(self, name: str) -> Tensor: ...

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix as it is stored; None if it is stored in floats."""
        ...


@runtime_checkable
class Float8Source(Protocol):
    """A source that has some matrices in float8_e4m3fn."""

    def float8(self, name: str) -> GroupedWeight | None:
        """Return a matrix as it is stored, with codes that are floats; None if it is stored
        otherwise."""
        ...


def matrix(source: WeightSource, name: str) -> GroupedWeight | Tensor:
    """Return a matrix in few bits if ``source`` has it so, else in floats."""
    found = source.grouped(name) if isinstance(source, GroupedSource) else None
    return source.tensor(name) if found is None else found


def quantise(weight: Tensor, bits: Bits) -> GroupedWeight:
    """``weight``: [outputs, inputs]."""
    outputs, inputs = weight.shape
    padded = functional.pad(weight.float(), (0, -inputs % GROUP))
    parts = padded.view(outputs, -1, GROUP)
    if bits == "int8":
        scales = parts.abs().amax(dim=2, keepdim=True) / _MOST
        codes = _rounded(parts * _inverse(scales))
    else:
        place = parts.abs().argmax(dim=2, keepdim=True)
        scales = parts.gather(2, place) / _LEAST
        codes = (parts * _inverse(scales) - (_LEAST - 0.5)).trunc().clamp(0, 15) + _LEAST
    return GroupedWeight(
        codes.to(torch.int8).view(outputs, -1)[:, :inputs].contiguous(),
        Scales(scales.squeeze(2).half().float()),
        None,
        GROUP,
    )


def quantise_float8(weight: Tensor) -> GroupedWeight:
    """``weight``: [outputs, inputs]. The codes are floats."""
    values = weight.float()
    scales = values.abs().amax(dim=1, keepdim=True) / _LARGEST
    codes = (values * _inverse(scales)).to(torch.float8_e4m3fn)
    return GroupedWeight(codes, Scales(scales), None, -(-weight.shape[1] // GROUP) * GROUP)


def _inverse(scales: Tensor) -> Tensor:
    """A group of zeros has no scale, nor one whose scale is too small to divide by; its codes are
    zeros."""
    return torch.where(scales.abs() < torch.finfo(scales.dtype).tiny, 0.0, 1 / scales)


def _rounded(values: Tensor) -> Tensor:
    """To the nearest integer, halves away from zero."""
    size = values.abs()
    whole = size.floor()
    return values.sign() * (whole + (2 * (size - whole)).floor())


class QuantisedWeights:
    """A source whose matrices are quantised, unless they already are in ``source`` or are among
    ``exact``. ``tensor`` returns them dequantised, so that a decoder without support for few bits
    has the same weights as one with it."""

    def __init__(
        self, source: WeightSource, kind: QuantisedKind, exact: Collection[str] = frozenset()
    ) -> None:
        self._source = source
        self._kind = kind
        self._exact = exact

    def tensor(self, name: str) -> Tensor:
        if name in self._exact:
            return self._source.tensor(name)
        found = matrix(self._source, name)
        if isinstance(found, GroupedWeight):
            return found.dequantised()
        if found.dim() != 2:
            return found
        kind = self._kind
        made = quantise_float8(found) if kind == "fp8" else quantise(found, kind)
        return made.dequantised().to(found.dtype)

    def blocks(self, name: str) -> BlockRows | None:
        if name in self._exact or not isinstance(self._source, BlockSource):
            return None
        return self._source.blocks(name)

    def grouped(self, name: str) -> GroupedWeight | None:
        if name in self._exact:
            return None
        if self._kind == "fp8":
            return self._source.grouped(name) if isinstance(self._source, GroupedSource) else None
        found = matrix(self._source, name)
        if isinstance(found, GroupedWeight):
            return found
        return quantise(found, self._kind)

    def float8(self, name: str) -> GroupedWeight | None:
        if name in self._exact or self._kind != "fp8":
            return None
        return quantise_float8(self._source.tensor(name))
