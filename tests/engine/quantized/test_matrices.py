"""A matrix is its scales times its codes, and integers exactly where that loses nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.quantized.matrices import QuantizedMatrix


def matrix(
    bits: int | None = 8, zeros: Tensor | None = None, columns: int = 32, **more: Tensor | None
) -> QuantizedMatrix:
    chance = torch.Generator().manual_seed(0)
    codes = torch.randint(-128, 128, (4, 96), generator=chance, dtype=torch.int8)
    scales = torch.rand(4, -(-96 // columns), generator=chance).half().float()
    return QuantizedMatrix(
        4,
        96,
        lambda first, last: codes[first:last],
        bits,
        more.get("scales") if isinstance(more.get("scales"), Tensor) else scales,
        zeros,
        1,
        columns,
        more.get("order"),
    )


def values(of: QuantizedMatrix) -> Tensor:
    found = torch.empty(4, 96)
    of.dequantise(found)
    return found


ZEROS = torch.full((4, 3), 7, dtype=torch.int16)


@pytest.mark.parametrize("columns", [16, 32, 48, 96, 1000])
def test_integers_stay_integers_in_groups_that_kernels_read(columns: int) -> None:
    grouped = matrix(columns=columns).grouped()
    assert grouped is not None
    assert grouped.group == (96 if columns >= 96 else columns)
    assert torch.equal(grouped.dequantised(), values(matrix(columns=columns)))


def test_zero_points_of_4_bits_are_minimums_or_subtracted() -> None:
    codes = torch.randint(-8, 8, (4, 96), generator=torch.Generator().manual_seed(0))
    short = torch.tensor([[0.5, 3.0, 0.001]]).half().float().repeat(4, 1)
    for scales in (short, torch.full((4, 3), 1 / 3)):
        of = QuantizedMatrix(4, 96, lambda a, b: codes[a:b].to(torch.int8), 4, scales, ZEROS, 1, 32)
        grouped = of.grouped()
        assert grouped is not None
        assert (grouped.minimums is not None) == (scales is short)
        assert torch.equal(grouped.dequantised(), values(of))


@pytest.mark.parametrize("columns", [32, 96, 1000])
def test_floats_of_8_bits_stay_so_in_groups_that_kernels_read(columns: int) -> None:
    codes = torch.arange(4 * 96, dtype=torch.int64).view(4, 96) % 127  # no NaN
    of = QuantizedMatrix(
        4,
        96,
        lambda first, last: codes[first:last].to(torch.uint8).view(torch.float8_e4m3fn),
        None,
        torch.tensor([[0.5, 3.0, 1 / 3][: -(-96 // columns)]] * 2),
        None,
        2,
        columns,
    )
    kept = of.float8()
    assert kept is not None
    assert kept.codes.dtype == torch.float8_e4m3fn
    assert torch.equal(kept.dequantised(), values(of))
    assert of.grouped() is None
    codes[3, 95] = 127
    assert of.float8() is None  # NaN, which kernels do not have


def test_groups_of_16_floats_and_integers_are_no_floats_of_8_bits() -> None:
    halves = torch.zeros(4, 96).to(torch.float8_e4m3fn)
    scales = torch.ones(4, 6)
    of = QuantizedMatrix(4, 96, lambda a, b: halves[a:b], None, scales, None, 1, 16)
    assert of.float8() is None
    assert matrix().float8() is None


def test_zero_points_of_8_bits_are_minimums_if_the_scales_are_short() -> None:
    grouped = matrix(zeros=ZEROS).grouped()
    assert grouped is not None
    assert grouped.minimums is not None
    assert torch.equal(grouped.dequantised(), values(matrix(zeros=ZEROS)))
    long = torch.full((4, 3), 1 / 3)
    assert matrix(zeros=ZEROS, scales=long).grouped() is None


@pytest.mark.parametrize(
    "other",
    [
        matrix(bits=None),
        matrix(columns=24),
        matrix(order=torch.arange(96) % 3),
    ],
    ids=["floats", "groups of 24", "in another order"],
)
def test_others_are_dequantized(other: QuantizedMatrix) -> None:
    assert other.grouped() is None
    assert values(other).isfinite().all()
