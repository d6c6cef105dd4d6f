"""Scores of text pairs, computed from their vectors."""

from __future__ import annotations

import operator
from array import array


def floats_of(vector: bytes) -> array[float]:
    """Decode the engine's little-endian float32."""
    return array("f", vector)


def cosine(one: array[float], other: array[float]) -> float:
    """Return the cosine of two vectors of length 1, which is their dot product, clipped to [-1,
    1]."""
    product: float = sum(map(operator.mul, one, other))
    return min(1.0, max(-1.0, product))
