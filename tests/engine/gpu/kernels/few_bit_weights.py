"""Weights of few bits for tests of kernels, with their values in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.gpu.kernels.few_bits import FewBitWeight, packed_e4m3, packed_few_bits
from engine.weights.grouped import GroupedWeight, Scales

E4M3 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Kind:
    """``group``: None for one scale an output. ``bits``: 4 or 8; None: E4M3."""

    bits: int | None
    group: int | None = 32
    has_zeros: bool = False

    def weight(
        self, outputs: int, inputs: int, device: torch.device
    ) -> tuple[FewBitWeight, Tensor]:
        group = self.group or -(-inputs // 32) * 32
        groups = -(-inputs // group)
        # Scales and their products with zero points are exact in all types of scales.
        scales = torch.randint(1, 128, (outputs, groups)).float() / 1024
        by_input = scales.repeat_interleave(group, 1)[:, :inputs].double()
        if self.bits is None:
            floats = torch.randn(outputs, inputs).to(E4M3)
            floats[0, :4] = torch.tensor([448.0, -448.0, 2**-9, -(2**-9)]).to(E4M3)
            found = packed_e4m3(floats.to(device), scales.to(device), group)
            return found, (floats.double() * by_input).to(device)
        half = 1 << self.bits - 1
        codes = torch.randint(-half, half, (outputs, inputs), dtype=torch.int8)
        codes[0, :2] = torch.tensor([-half, half - 1])
        zeros = torch.randint(-half, half, (outputs, groups)).float() * self.has_zeros
        grouped = GroupedWeight(
            codes, Scales(scales), Scales(scales * zeros) if self.has_zeros else None, group
        )
        weight = packed_few_bits(grouped, device)
        assert weight is not None
        assert weight.bits == self.bits
        by_zero = zeros.repeat_interleave(group, 1)[:, :inputs].double()
        return weight, (by_input * (codes.double() - by_zero)).to(device)


KINDS = [
    Kind(4),
    Kind(4, 64, has_zeros=True),
    Kind(4, 128),
    Kind(4, 96),
    Kind(4, None),
    Kind(8),
    Kind(8, 128, has_zeros=True),
    Kind(None, 128),
    Kind(None, None),
]


def with_scales_in(weight: FewBitWeight, dtype: torch.dtype) -> FewBitWeight:
    zeros = None if weight.zeros is None else weight.zeros.to(dtype)
    return replace(weight, scales=weight.scales.to(dtype), zeros=zeros)
