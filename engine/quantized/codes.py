"""Takes packed codes apart."""

from __future__ import annotations

import torch
from torch import Tensor

# Nibble i of a word of AWQ belongs to output _AWQ_ORDER[i] of its eight.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
# Twice the numbers of E2M1, which are then integers.
_E2M1 = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.int8)


def codes_of(words: Tensor, bits: int) -> Tensor:
    """int32 [..., words] to uint8 [..., words * 32 / bits]: 2, 4 or 8 bits each, the low ones
    first."""
    *shape, last = words.shape
    # Little-endian, as are all machines that we run on.
    octets = words.contiguous().view(-1).view(torch.uint8).view(*shape, 4 * last)
    if bits == 8:
        return octets
    mask = (1 << bits) - 1
    parts = [octets >> shift & mask for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)


def plus_one(words: Tensor, bits: int) -> Tensor:
    """Add 1 to whole int32 words at the place of each code, with carries from one code to the next,
    modulo 2^32."""
    return words + ((1 << 32) - 1) // ((1 << bits) - 1)


def centred(codes: Tensor, bits: int) -> Tensor:
    """uint8 codes to int8 ones around zero."""
    return (codes.to(torch.int16) - (1 << bits - 1)).to(torch.int8)


def awq_ordered(codes: Tensor) -> Tensor:
    """Return nibbles in the order of the outputs: [..., outputs]."""
    places = torch.tensor(_AWQ_ORDER).argsort()
    eights = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 8, 8)
    return eights.index_select(-1, places).flatten(-2)


def e2m1(octets: Tensor) -> Tensor:
    """uint8 [..., n] to int8 [..., 2 n]: twice the number in each nibble, the low one first."""
    nibbles = torch.stack([octets & 15, octets >> 4], -1).flatten(-2)
    return _E2M1.index_select(0, nibbles.flatten().int()).view(nibbles.shape)


def scale_values(stored: Tensor) -> Tensor:
    """Return scales as float32: numbers, or exponents of two in bytes (E8M0)."""
    if stored.dtype != torch.uint8:
        return stored.float()
    values = torch.exp2(stored.double() - 127).float()
    return values.masked_fill_(stored == 255, torch.nan)
