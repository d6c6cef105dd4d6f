"""Codes come out of words and bytes in their order."""

from __future__ import annotations

import pytest
import torch

from engine.quantized.codes import (
    awq_ordered,
    centred,
    codes_of,
    e2m1,
    plus_one,
    scale_values,
)


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (8, [0x21, 0x43, 0x65, 0x87]),
        (4, [1, 2, 3, 4, 5, 6, 7, 8]),
        (2, [1, 0, 2, 0, 3, 0, 0, 1, 1, 1, 2, 1, 3, 1, 0, 2]),
    ],
)
def test_the_lowest_bits_are_first(bits: int, expected: list[int]) -> None:
    words = torch.tensor([[0x87654321 - (1 << 32)]], dtype=torch.int32)
    assert codes_of(words, bits).tolist() == [expected]
    assert codes_of(words.expand(3, 1).t(), bits).tolist() == [expected * 3]
    assert codes_of(words[:0], bits).shape == (0, len(expected))


@pytest.mark.parametrize(("bits", "ones"), [(2, 0x55555555), (4, 0x11111111), (8, 0x01010101)])
def test_one_is_added_as_it_was_subtracted_with_borrows(bits: int, ones: int) -> None:
    words = torch.tensor([0, 1, 0x10, 0x87654321, 0xFFFF0000, 0xFFFFFFFF])
    stored = (words - ones).to(torch.int32)  # wraps
    assert torch.equal(plus_one(stored, bits), words.to(torch.int32))


def test_codes_are_centred() -> None:
    assert centred(torch.tensor([0, 8, 15], dtype=torch.uint8), 4).tolist() == [-8, 0, 7]
    assert centred(torch.tensor([0, 255], dtype=torch.uint8), 8).tolist() == [-128, 127]


def test_nibbles_of_awq_alternate() -> None:
    stored = torch.tensor([[0, 2, 4, 6, 1, 3, 5, 7]])
    assert awq_ordered(stored).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_twice_a_number_of_e2m1_is_an_integer() -> None:
    octets = torch.tensor([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE], dtype=torch.uint8)
    numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert e2m1(octets).tolist() == [2 * number for number in numbers]


def test_bytes_are_exponents_of_scales() -> None:
    values = scale_values(torch.arange(256, dtype=torch.uint8))
    assert values[:255].tolist() == [2.0 ** (byte - 127) for byte in range(255)]
    assert values[255].isnan()
    assert scale_values(torch.ones(2).bfloat16()).dtype == torch.float32
