"""The steps of sampling by hand; what they come to is in test_sampling.py."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from engine.gpu.kernels.drawing import is_filtered, key_of, lacks


@triton.jit
def _keys(values, keys, COUNT: tl.constexpr):
    places = tl.arange(0, COUNT)
    tl.store(keys + places, key_of(tl.load(values + places)))


def test_keys_order_as_floats_do_and_both_zeros_are_one(device: torch.device) -> None:
    values = [-math.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, math.inf]
    keys = torch.zeros(8, dtype=torch.int64, device=device)
    _keys[(1,)](torch.tensor(values, device=device), keys, COUNT=8)
    found = keys.tolist()
    assert found == sorted(found)
    assert len(set(found)) == 7
    assert found[3] == found[4]


@triton.jit
def _decide(top_ks, top_ps, counts, nears, decided, vocabulary, COUNT: tl.constexpr):
    row = tl.arange(0, COUNT)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    whole = tl.full([COUNT], 1000, tl.int64)
    count, near = tl.load(counts + row), tl.load(nears + row)
    tl.store(decided + row, is_filtered(top_k, top_p, vocabulary).to(tl.int32))
    few = lacks(count, near, whole, top_k, top_p, vocabulary)
    tl.store(decided + COUNT + row, few.to(tl.int32))


@pytest.mark.parametrize(
    ("top_k", "top_p", "count", "near", "filtered", "few"),
    [
        (0, 1.0, 9, 1000, False, False),
        (40, 1.0, 9, 1000, False, False),  # as many as there are tokens
        (9, 1.0, 9, 10, True, False),
        (9, 1.0, 8, 1000, True, True),
        (0, 0.5, 9, 500, True, False),
        (0, 0.5, 9, 499, True, True),
        (3, 0.5, 3, 1, True, False),  # top-p is then a share of those three
    ],
)
def test_candidates_that_are_too_few_for_a_filter_are_noticed(
    device: torch.device,
    top_k: int,
    top_p: float,
    count: int,
    near: int,
    filtered: bool,
    few: bool,
) -> None:
    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([value], dtype=dtype, device=device)

    decided = torch.zeros(2, dtype=torch.int32, device=device)
    _decide[(1,)](
        column(top_k, torch.int32),
        column(top_p, torch.float64),
        column(count, torch.int32),
        column(near, torch.int64),
        decided,
        40,
        COUNT=1,
    )
    assert decided.tolist() == [filtered, few]
