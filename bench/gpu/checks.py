"""All comparisons with float64, in order of worth."""

from __future__ import annotations

import torch

from bench.gpu import correctness, correctness_of_weights
from bench.gpu.correctness import Check


def all_checks(device: torch.device, *, large: bool) -> list[Check]:
    """See ``correctness.checks``."""
    return [
        *correctness.checks(device, large=large),
        *correctness_of_weights.checks(device, large=large),
    ]
