"""What vectors say of pairs of texts."""

from __future__ import annotations

import operator
from array import array


def floats_of(vector: bytes) -> array[float]:
    """The engine's little-endian float32."""
    return array("f", vector)


def cosine(one: array[float], other: array[float]) -> float:
    """Of two vectors of length 1, hence their product; rounding is kept out of the bounds."""
    product: float = sum(map(operator.mul, one, other))
    return min(1.0, max(-1.0, product))
