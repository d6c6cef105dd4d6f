"""Decodes blocks of GGUF's quantized types to codes, scales and minimums, the canonical form of
``engine.weights.grouped``, in numpy.

The layouts are those of ggml (``ggml-common.h``). Scales and minimums are rounded to float32 as
ggml's own dequantization does, so that the weights are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.gguf.types import FLOAT_TYPES

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_IQ4 = np.array((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.int8)
# Twice the values of e2m1.
_FP4 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.int8)


class DecodedBlocks(NamedTuple):
    """``codes``: int8 [blocks, elements]; ``scales``, ``minimums``: float32 [blocks, 1]; if a block
    has several groups, they are multiplied by ``fine_scales`` and ``fine_minimums``, integers
    [blocks, groups]."""

    codes: NDArray[np.int8]
    scales: Floats
    minimums: Floats | None = None
    fine_scales: NDArray[Any] | None = None
    fine_minimums: NDArray[Any] | None = None


def _halves(blocks: Bytes, first: int) -> Floats:
    """Return float16 of two bytes as float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, first : first + 2]).view("<f2").astype(np.float32)


def _signed(codes: NDArray[Any], offset: int = 0) -> NDArray[np.int8]:
    """Return codes of less than 8 bits, shifted down by ``offset``."""
    signed = codes.view(np.int8)
    return signed - np.int8(offset) if offset else signed


def _nibbles(packed: Bytes) -> NDArray[Any]:
    """[blocks, n] to [blocks, 2 n]: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _alternating_nibbles(packed: Bytes, run: int) -> NDArray[Any]:
    """The same for every ``run`` bytes: their low halves, then their high halves."""
    runs = packed.reshape(len(packed), -1, 1, run)
    return np.concatenate([runs & 15, runs >> 4], axis=2).reshape(len(packed), -1)


def _bit_pairs(packed: Bytes, run: int = 32) -> NDArray[Any]:
    """Of every ``run`` bytes: bits 0 and 1 of each, then bits 2 and 3, and so on."""
    runs = packed.reshape(len(packed), -1, 1, run)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return ((runs >> shifts) & 3).reshape(len(packed), -1)


def _bit_planes(packed: Bytes) -> NDArray[Any]:
    """Of 32 bytes: bit 0 of each, then bit 1, and so on: [blocks, 256]."""
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    return ((packed.reshape(-1, 1, 32) >> shifts) & 1).reshape(len(packed), -1)


def _q4_0(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_signed(_nibbles(blocks[:, 2:]), 8), _halves(blocks, 0))


def _q4_1(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_signed(_nibbles(blocks[:, 4:])), _halves(blocks, 0), -_halves(blocks, 2))


def _five_bits(blocks: Bytes, first: int) -> NDArray[Any]:
    fifth = np.unpackbits(blocks[:, first : first + 4], axis=1, bitorder="little")
    codes: NDArray[Any] = _nibbles(blocks[:, first + 4 :]) | fifth << 4
    return codes


def _q5_0(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_signed(_five_bits(blocks, 2), 16), _halves(blocks, 0))


def _q5_1(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_signed(_five_bits(blocks, 4)), _halves(blocks, 0), -_halves(blocks, 2))


def _q8_0(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_signed(blocks[:, 2:]), _halves(blocks, 0))


def _q2_k(blocks: Bytes) -> DecodedBlocks:
    packed, codes = blocks[:, :16], _signed(_bit_pairs(blocks[:, 16:80]))
    return DecodedBlocks(codes, _halves(blocks, 80), _halves(blocks, 82), packed & 15, packed >> 4)


def _q3_k(blocks: Bytes) -> DecodedBlocks:
    low = _nibbles(blocks[:, 96:104])
    high = _bit_pairs(blocks[:, 104:108], run=4)
    # A bit that is not set means 4 less.
    codes = _bit_pairs(blocks[:, 32:96]) | _bit_planes(blocks[:, :32]) << 2
    return DecodedBlocks(
        _signed(codes, 4), _halves(blocks, 108), fine_scales=_signed(low | high << 4, 32)
    )


def _with_k_scales(codes: NDArray[Any], blocks: Bytes) -> DecodedBlocks:
    """Of a Q4_K or Q5_K block: eight groups' scales and minimums of six bits each."""
    first, second, mixed = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (mixed & 15) | (first >> 2 & 48)], axis=1)
    minimums = np.concatenate([second & 63, (mixed >> 4) | (second >> 2 & 48)], axis=1)
    return DecodedBlocks(_signed(codes), _halves(blocks, 0), _halves(blocks, 2), scales, minimums)


def _q4_k(blocks: Bytes) -> DecodedBlocks:
    return _with_k_scales(_alternating_nibbles(blocks[:, 16:], 32), blocks)


def _q5_k(blocks: Bytes) -> DecodedBlocks:
    codes = _alternating_nibbles(blocks[:, 48:], 32) | _bit_planes(blocks[:, 16:48]) << 4
    return _with_k_scales(codes, blocks)


def _q6_k(blocks: Bytes) -> DecodedBlocks:
    codes = _alternating_nibbles(blocks[:, :128], 64) | _bit_pairs(blocks[:, 128:192]) << 4
    fine = _signed(blocks[:, 192:208])
    return DecodedBlocks(_signed(codes, 32), _halves(blocks, 208), fine_scales=fine)


def _iq4_nl(blocks: Bytes) -> DecodedBlocks:
    return DecodedBlocks(_IQ4[_nibbles(blocks[:, 2:])], _halves(blocks, 0))


def _iq4_xs(blocks: Bytes) -> DecodedBlocks:
    high = _bit_pairs(blocks[:, 2:4], run=1)
    low = _alternating_nibbles(blocks[:, 4:8], 1)
    fine = _signed(low | high << 4, 32)
    codes = _IQ4[_alternating_nibbles(blocks[:, 8:], 16)]
    return DecodedBlocks(codes, _halves(blocks, 0), fine_scales=fine)


def _mxfp4(blocks: Bytes) -> DecodedBlocks:
    exponent = blocks[:, :1].astype(np.uint32)
    # Half of 2^(exponent - 127), because the codes are doubled; subnormal for 0 and 1.
    bits = np.where(exponent < 2, 0x00200000 << exponent, (exponent - 1) << 23)
    return DecodedBlocks(_FP4[_nibbles(blocks[:, 1:])], bits.astype(np.uint32).view(np.float32))


DECODERS: dict[str, Callable[[Bytes], DecodedBlocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
"""By the type's name: decodes uint8 [blocks, bytes of a block]."""

SUPPORTED_TYPES = (*FLOAT_TYPES, *DECODERS)
