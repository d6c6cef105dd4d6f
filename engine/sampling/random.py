"""Uniform random numbers that are a pure function of (seed, position).

Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
1, 2, 3" (SC 2011). The key is a sequence's seed, the counter the position of the token being
sampled, so a number depends on nothing else: not on batch mates, preemption or restarts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


def philox4x32(
    counter: tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array],
    key: tuple[UInt64Array, UInt64Array],
) -> tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]:
    """Four 32-bit words (in uint64 arrays of any one shape) from a 128-bit counter and a 64-bit
    key, given as 32-bit words, least significant first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _HALF) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _HALF) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def uniforms(seeds: UInt64Array, positions: UInt64Array) -> NDArray[np.float64]:
    """float64 in [0, 1) with 53 random bits, one for each pair of a seed and a position."""
    zero = np.zeros_like(positions)
    w0, w1, _, _ = philox4x32(
        (positions & _LOW, positions >> _HALF, zero, zero), (seeds & _LOW, seeds >> _HALF)
    )
    bits = ((w0 >> np.uint64(5)) << np.uint64(26)) | (w1 >> np.uint64(6))
    return bits.astype(np.float64) * 2.0**-53
