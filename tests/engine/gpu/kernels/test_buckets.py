"""Buckets narrow a threshold down and leave no value out; what is drawn from them is in
test_sampling.py and test_sampling_parts.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from engine.gpu.kernels.buckets import (
    BUCKETS,
    COPIES,
    bucket_of,
    find_bucket,
    first_cut,
    masses_of_parts,
    threshold_of_parts,
)
from engine.gpu.kernels.drawing import key_of

BUCKETS_OF_ROW = BUCKETS.value
COPIES_OF_ROW = COPIES.value


@triton.jit
def _place(values, found, top, COUNT: tl.constexpr):
    places = tl.arange(0, COUNT)
    tl.store(found + places, bucket_of(tl.load(values + places), top))


@pytest.mark.parametrize("top", [0.0, 17.625, -3.3, 1e4])
def test_a_lower_value_is_never_in_an_earlier_bucket(device: torch.device, top: float) -> None:
    at = torch.tensor(top, device=device)
    distances = torch.cat([torch.linspace(0, 17, 4094), torch.tensor([3e38, math.inf])])
    values = at - distances.to(device)
    found = torch.zeros(4096, dtype=torch.int32, device=device)
    _place[(1,)](values, found, top, COUNT=4096)
    assert found[0] == 0
    assert found[-2:].tolist() == [BUCKETS_OF_ROW - 1] * 2
    assert found.diff().min() >= 0
    if abs(top) < 20:
        begins = distances[found.cpu().diff(prepend=torch.tensor([-1])) > 0]
        assert begins.diff().max() <= 16 / 128 + 2 * 17 / 4094
        assert begins[begins < 0.5].diff().max() <= 0.5 / 64 + 2 * 17 / 4094


@triton.jit
def _find(tables, found, wanted):
    bucket, before, total = find_bucket(tables, wanted)
    tl.store(found, bucket)
    tl.store(found + 1, before)
    tl.store(found + 2, total)


@pytest.mark.parametrize(
    ("wanted", "bucket", "before"),
    [(1, 3, 0), (40, 3, 0), (41, 7, 40), (45, 7, 40), (46, BUCKETS_OF_ROW - 1, 45)],
)
def test_the_bucket_is_the_first_that_reaches_what_is_wanted(
    device: torch.device, wanted: int, bucket: int, before: int
) -> None:
    tables = torch.zeros(COPIES_OF_ROW, BUCKETS_OF_ROW, dtype=torch.int64, device=device)
    tables[:, 3] = 10
    tables[0, 7] = 5
    found = torch.zeros(3, dtype=torch.int64, device=device)
    _find[(1,)](tables, found, wanted)
    assert found.tolist() == [bucket, before, 45]


@triton.jit
def _cut(peaks, top_ps, cuts, floor, top, temperature, top_k, vocabulary, PARTS: tl.constexpr):
    peak = tl.load(peaks + tl.arange(0, PARTS))
    cut = first_cut(peak, temperature, floor, top, top_k, tl.load(top_ps), vocabulary)
    tl.store(cuts, cut)


def cut_of(peaks: Tensor, *, top_k: int = 0, top_p: float = 1.0, floor: float = -math.inf) -> float:
    """At temperature 2, of a row of 1000."""
    cuts = torch.zeros(1, device=peaks.device)
    top_ps = torch.tensor([top_p], dtype=torch.float64, device=peaks.device)
    top = float(peaks.max()) / 2
    _cut[(1,)](peaks, top_ps, cuts, floor, top, 2.0, top_k, 1000, PARTS=32)
    return cuts.item()


def test_top_k_is_among_the_peaks_of_as_many_parts(device: torch.device) -> None:
    peaks = torch.arange(32.0, device=device)
    assert cut_of(peaks, top_k=1) == 31 / 2
    assert cut_of(peaks, top_k=20) == 12 / 2
    assert cut_of(peaks, top_k=33) == 31 / 2 - 16
    assert cut_of(peaks, top_k=20, floor=9.0) == 9.0
    assert cut_of(peaks // 4, top_k=3) == 7 / 2
    assert cut_of(torch.where(peaks < 30, -math.inf, peaks), top_k=2) == 30 / 2
    assert cut_of(torch.where(peaks < 30, -math.inf, peaks), top_k=3) == 31 / 2 - 16


def test_what_lies_below_the_cut_weighs_less_than_top_p_leaves_out(device: torch.device) -> None:
    torch.manual_seed(0)
    for spread in (0.0, 1.0, 8.0):
        peaks = torch.randn(32, device=device) * spread
        for top_p in (0.5, 0.9, 0.999):
            top = peaks.max() / 2
            cut = cut_of(peaks, top_p=top_p)
            assert top - 16 <= cut
            least = (peaks / 2 - top).double().exp().sum().item()
            if cut > top - 16:
                assert 1000 * math.exp(cut - float(top)) < (1 - top_p) * least
    assert cut_of(torch.zeros(32, device=device), top_p=1 - 1e-16) == -16


@triton.jit
def _settle(values, counts, keys, found, wanted, width, top, PARTS: tl.constexpr):
    parts = tl.arange(0, PARTS)
    sizes = tl.load(counts + parts)
    by_count = threshold_of_parts(values, sizes, width, wanted, top, False, PARTS)
    masses = masses_of_parts(values, sizes, width, top, by_count, PARTS)
    by_weight = threshold_of_parts(values, sizes, width, tl.sum(masses, 0), top, True, PARTS)
    tl.store(keys, by_count)
    tl.store(keys + 1, by_weight)
    tl.store(keys + 2 + tl.arange(0, 4), key_of(tl.load(values + tl.arange(0, 4))))
    tl.store(found + parts, masses)


def test_candidates_of_uneven_parts_have_one_threshold(device: torch.device) -> None:
    """Part 1 has more than are looked at together, part 2 none, and part 3 one; the space
    after them is not read."""
    width, top = 80, 3.0
    values = torch.full((4, width), math.nan, device=device)
    sizes = [2, 70, 0, 1]
    values[0, :2] = torch.tensor([3.0, 1.0])
    values[1, :70] = torch.linspace(-5, 0, 70)
    values[3, 0] = 1.0
    values[1, 66] = 2.0
    counts = torch.tensor(sizes, dtype=torch.int32, device=device)
    keys = torch.zeros(6, dtype=torch.int64, device=device)
    found = torch.zeros(4, dtype=torch.int64, device=device)
    _settle[(1,)](values, counts, keys, found, 3, width, top, PARTS=4)
    by_count, by_weight, _, of_one, *_ = keys.tolist()
    assert by_count == by_weight == of_one  # two are equal: 1.0
    expected = [1 + math.exp(-2), math.exp(-1), 0, math.exp(-2)]
    assert found.double().div(2**44).tolist() == pytest.approx(expected, rel=1e-6)
