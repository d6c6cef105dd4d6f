"""Weights as small integers.

int8: symmetric, one scale for every ``GROUP`` inputs of an output, chosen so that the largest
weight of the group becomes 127 or -127. A weight's error is at most half a scale. Activations keep
their precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from engine.weights.weights import WeightSource

Quantization = Literal["none", "int8"]

GROUP = 64
_MOST = 127


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """``values`` int8 [outputs, inputs]; ``scales`` float32 [outputs, groups]. The last group may
    be shorter than the others."""

    values: Tensor
    scales: Tensor

    def dequantised(self) -> Tensor:
        """Return float32 [outputs, inputs]."""
        inputs = self.values.shape[1]
        return self.values * self.scales.repeat_interleave(GROUP, dim=1)[:, :inputs]


def quantise(weight: Tensor) -> Int8Weight:
    """``weight``: [outputs, inputs]."""
    outputs, inputs = weight.shape
    groups = -(-inputs // GROUP)
    padded = functional.pad(weight.float(), (0, groups * GROUP - inputs))
    parts = padded.view(outputs, groups, GROUP)
    scales = parts.abs().amax(dim=2) / _MOST
    # A group of zeros has no scale; any value works.
    divisors = torch.where(scales > 0, scales, 1.0).unsqueeze(2)
    values = (parts / divisors).round_().clamp_(-_MOST, _MOST).to(torch.int8)
    return Int8Weight(values.view(outputs, -1)[:, :inputs].contiguous(), scales)


class DequantisedWeights:
    """A source whose matrices were quantised and dequantised: a decoder without int8 support gets
    the same numbers as one with it."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source

    def tensor(self, name: str) -> Tensor:
        tensor = self._source.tensor(name)
        if tensor.dim() != 2:
            return tensor
        return quantise(tensor).dequantised().to(tensor.dtype)
