"""Masks of allowed tokens, as bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.step.mask import TokenMask, allows, without

WORDS = 3
TOKENS = st.frozensets(st.integers(0, 32 * WORDS - 1))


def mask_of(token_ids: frozenset[int]) -> TokenMask:
    bits = np.zeros(32 * WORDS, dtype=np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


@given(allowed=TOKENS, removed=TOKENS, beyond=st.frozensets(st.integers(32 * WORDS, 500)))
def test_exactly_these_tokens_are_taken_out_of_a_copy(
    allowed: frozenset[int], removed: frozenset[int], beyond: frozenset[int]
) -> None:
    mask = mask_of(allowed)
    fewer = without(mask, removed | beyond)
    np.testing.assert_array_equal(fewer, mask_of(allowed - removed))
    assert fewer.dtype == np.uint32
    np.testing.assert_array_equal(mask, mask_of(allowed))


@given(allowed=TOKENS)
def test_a_token_is_allowed_if_its_bit_is_set(allowed: frozenset[int]) -> None:
    mask = mask_of(allowed)
    assert {token for token in range(32 * WORDS + 40) if allows(mask, token)} == allowed
