"""Random weights of few bits."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cpu.integers import IntegerKind
from engine.weights.grouped import GroupedWeight, Scales

E2M1_TWICE = torch.tensor(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.int8
)


def random_weight(kind: IntegerKind, outputs: int, inputs: int) -> GroupedWeight:
    """One that ``kind`` stores; its codes and scales are as extreme as the kind allows."""
    chance = torch.Generator().manual_seed(outputs * inputs)

    def codes(low: int, high: int) -> Tensor:
        found = torch.randint(low, high, (outputs, inputs), generator=chance, dtype=torch.int8)
        found[0] = high - 1
        found[-1] = low
        return found

    def halves(group: int) -> Tensor:
        groups = -(-inputs // group)
        return torch.randn(outputs, groups, generator=chance).half().float()

    def fine(low: int, high: int, group: int) -> Tensor:
        shape = (outputs, inputs // group)
        return torch.randint(low, high, shape, generator=chance, dtype=torch.int16)

    if kind is IntegerKind.NIBBLES:
        return GroupedWeight(codes(-8, 8), Scales(halves(32)), None, 32)
    if kind is IntegerKind.NIBBLES_ZERO:
        scales = halves(64)
        zeros = torch.randint(-8, 9, scales.shape, generator=chance)
        zeros[1] = 247  # as far as they go
        return GroupedWeight(codes(-8, 8), Scales(scales), Scales(scales * zeros), 64)
    if kind is IntegerKind.NIBBLES_MX:
        chosen = torch.randint(0, 16, (outputs, inputs), generator=chance)
        chosen[0], chosen[-1] = 7, 15
        exponents = torch.randint(-60, 20, (outputs, -(-inputs // 32)), generator=chance)
        exponents[1:3, 0] = torch.tensor([-126, 90])
        scales = torch.exp2(exponents.double()).float()
        scales[3, 0] = 0
        return GroupedWeight(E2M1_TWICE[chosen], Scales(scales), None, 32)
    if kind is IntegerKind.BYTES:
        return GroupedWeight(codes(-127, 127), Scales(halves(32)), None, 32)
    if kind is IntegerKind.NIBBLES_K:
        scales = [Scales(halves(256), fine(0, 64, 32)) for _ in range(2)]
        return GroupedWeight(codes(0, 16), scales[0], scales[1], 32)
    if kind is IntegerKind.BYTES_K:
        return GroupedWeight(codes(-32, 33), Scales(halves(256), fine(-128, 128, 16)), None, 16)
    scales = [Scales(halves(16) / 3) for _ in range(2)]
    return GroupedWeight(codes(-127, 127), scales[0], scales[1], 16)
