"""The device's random numbers are those of the host."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from engine.gpu.kernels.philox import uniform
from engine.sampling.random import uniforms


@triton.jit
def _uniforms(seeds, positions, out):
    place = tl.program_id(0)
    tl.store(out + place, uniform(tl.load(seeds + place), tl.load(positions + place)))


def test_random_numbers_are_those_of_the_host_to_the_last_bit(device: torch.device) -> None:
    chance = random.Random(0)
    seeds = np.array([0, 1, 2**64 - 1, *(chance.getrandbits(64) for _ in range(30))], np.uint64)
    positions = np.array([0, 5, 2**31 - 1, *(chance.randrange(1 << 24) for _ in range(30))])
    out = torch.empty(len(seeds), dtype=torch.float64, device=device)
    _uniforms[(len(seeds),)](
        torch.from_numpy(seeds.view(np.int64)).to(device),
        torch.from_numpy(positions.astype(np.int32)).to(device),
        out,
    )
    assert out.tolist() == uniforms(seeds, positions.astype(np.uint64)).tolist()
