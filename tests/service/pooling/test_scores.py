"""Scores of pairs of vectors."""

from __future__ import annotations

import math
import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.pooling.scores import cosine, floats_of


def test_a_cosine_stays_within_its_bounds_despite_rounding() -> None:
    vector = floats_of(struct.pack("<3f", 0.57735026, 0.57735026, 0.57735032))
    assert cosine(vector, vector) <= 1
    opposite = floats_of(struct.pack("<3f", -0.57735026, -0.57735026, -0.57735032))
    assert cosine(vector, opposite) >= -1
    assert cosine(floats_of(struct.pack("<2f", 1, 0)), floats_of(struct.pack("<2f", 0, 1))) == 0


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=8))
def test_a_vector_is_read_as_the_engine_wrote_it(values: list[float]) -> None:
    assert list(floats_of(struct.pack(f"<{len(values)}f", *values))) == values


@pytest.mark.parametrize("size", [1, 2, 64, 1024])
def test_the_cosine_is_that_of_the_angle_between_two_vectors(size: int) -> None:
    """The oracle is the law of cosines, in double precision."""
    rng = Random(size)
    one, other = ([rng.gauss(0, 1) for _ in range(size)] for _ in range(2))
    units = []
    for vector in (one, other):
        length = math.hypot(*vector)
        units.append([value / length for value in vector])
    packed = [floats_of(struct.pack(f"<{size}f", *unit)) for unit in units]
    expected = 1 - math.dist(*units) ** 2 / 2
    assert math.isclose(cosine(*packed), expected, abs_tol=1e-5)
