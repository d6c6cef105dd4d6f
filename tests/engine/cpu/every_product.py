"""Multiplies every kind of weights with finite and other inputs, by the library at a path:

python -m tests.engine.cpu.every_product PATH
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from engine.cpu.integers import IntegerKind
from engine.cpu.library import Library, usable_levels
from engine.cpu.packed import PackedWeight
from tests.engine.cpu.random_weights import random_weight

INPUTS, OUTPUTS = 256, 37


def main(path: Path) -> None:
    usable_levels()  # asks the kernel for AMX
    library = Library(path)
    team, chance = library.team(2), torch.Generator().manual_seed(1)
    floats = torch.randn(OUTPUTS, INPUTS, generator=chance)
    weights = [PackedWeight(each, None, library.panel) for each in (floats, floats.bfloat16())]
    weights += [
        PackedWeight(random_weight(kind, OUTPUTS, INPUTS), None, library.panel)
        for kind in IntegerKind
    ]
    if library.bf16_products:
        pairs = library.pair_inputs
        weights.append(PackedWeight(floats.bfloat16(), None, library.panel, pair_inputs=pairs))
    x = torch.randn(40, INPUTS, generator=chance)
    x[1] *= 1e-38  # the reciprocals of such scales are infinite
    x[2, ::3] = float("nan")
    x[3, ::5] = float("inf")
    x[4] = 3e38
    x[5] = 0
    for weight in weights:
        together = weight.mapped(library, team, x)
        for rows in (1, 2, 9, 17):
            alone = weight.mapped(library, team, x[:rows])
            torch.testing.assert_close(alone, together[:rows], rtol=0, atol=0, equal_nan=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
