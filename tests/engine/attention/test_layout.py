"""Rows and slots number every place of a cache once, in the order in which memory has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.layout import CacheShape, Plans, Ragged, Rows, expect

sizes = st.integers(1, 5)


@given(blocks=sizes, heads=sizes, size=sizes)
def test_rows_and_slots_are_places_of_the_cache_s_array(blocks: int, heads: int, size: int) -> None:
    """Against numpy's own numbering of an array [blocks, 2, kv_heads, block_size]."""
    shape = CacheShape(size, heads)
    places = np.arange(blocks * 2 * heads * size).reshape(blocks, 2, heads, size)
    order = np.random.default_rng(blocks).permutation(blocks)
    rows = shape.rows(order[None])
    assert rows.shape == (2, 1, heads, blocks)
    first_slots = places[order, :, :, 0].transpose(1, 2, 0)[:, None]
    assert (rows * size == first_slots).all()
    for offset in range(size):
        slots = shape.slots(order, np.full(blocks, offset))
        assert (slots == places[order, :, :, offset].reshape(blocks, -1)).all()


def test_a_decoder_is_given_the_layout_that_it_reads_or_says_so() -> None:
    nothing = torch.empty(0)
    rows = Rows(nothing, nothing, 1)
    assert expect(Rows, rows) is rows
    with pytest.raises(ValueError, match="laid out as Rows, but the decoder reads Ragged"):
        expect(Ragged, rows)
    with pytest.raises(ValueError, match="laid out as Rows, but the decoder reads Plans"):
        expect(Plans, rows)
