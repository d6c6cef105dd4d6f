"""Every shape that is served has tiles, and helpers of launches keep their promises."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from engine.gpu.kernels.launch import (
    decode_tiles,
    num_sms,
    padded,
    ragged_tiles,
    row_stride,
    warps_for,
)


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_head_that_fits_has_tiles_whose_sides_triton_takes(dtype: torch.dtype) -> None:
    for head_dim in range(8, 257, 8):
        decode, ragged = decode_tiles(head_dim, dtype), ragged_tiles(head_dim, dtype)
        for side in (decode.keys, ragged.rows, ragged.keys, padded(head_dim)):
            assert is_power_of_two(side)
            assert side >= 16  # a product on the tensor cores
        assert head_dim <= padded(head_dim) <= max(16, 2 * head_dim)


@given(st.integers(1, 100_000))
def test_warps_are_a_power_of_two_that_a_program_may_have(elements: int) -> None:
    assert is_power_of_two(warps_for(elements))
    assert warps_for(elements) <= 16


def test_a_row_s_elements_must_be_adjacent() -> None:
    x = torch.zeros(4, 10)
    assert row_stride(x[:, :3]) == 10
    with pytest.raises(ValueError, match="adjacent"):
        row_stride(x.t())


def test_a_cpu_counts_as_one_multiprocessor() -> None:
    assert num_sms(torch.device("cpu")) == 1
