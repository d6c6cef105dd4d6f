"""Scores of pairs of vectors."""

from __future__ import annotations

import struct

from service.pooling.scores import cosine, floats_of


def test_a_cosine_stays_within_its_bounds_whatever_the_rounding() -> None:
    vector = floats_of(struct.pack("<3f", 0.57735026, 0.57735026, 0.57735032))
    assert cosine(vector, vector) <= 1
    opposite = floats_of(struct.pack("<3f", -0.57735026, -0.57735026, -0.57735032))
    assert cosine(vector, opposite) >= -1
    assert cosine(floats_of(struct.pack("<2f", 1, 0)), floats_of(struct.pack("<2f", 0, 1))) == 0
