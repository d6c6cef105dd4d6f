"""Grammars' masks hide every token that they do not allow, and touch no other row."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.allowed import forbid_others
from tests.examples import examples

HIDDEN = float("-inf")


@settings(max_examples=examples(60))
@given(
    vocabulary=st.integers(1, 100),
    words=st.integers(0, 4),
    rows=st.integers(1, 4),
    data=st.data(),
)
def test_only_allowed_tokens_of_masked_rows_stay(
    vocabulary: int, words: int, rows: int, data: st.DataObject
) -> None:
    """Masks may end before the vocabulary does, or after it."""
    masked = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    tokens = st.sets(st.integers(0, max(0, 32 * words - 1)))
    allowed = [data.draw(tokens) if words else set() for _ in masked]
    mask = np.zeros((len(masked), words), dtype=np.uint32)
    for row, kept in zip(mask, allowed, strict=True):
        for token in kept:
            row[token // 32] |= np.uint32(1 << token % 32)
    before = torch.randn(rows, vocabulary)
    logits = before.clone()
    forbid_others(logits, masked, mask)
    by_row = dict(zip(masked, allowed, strict=True))
    for row in range(rows):
        for token in range(vocabulary):
            stays = row not in by_row or token in by_row[row]
            expected = before[row, token].item() if stays else HIDDEN
            assert logits[row, token].item() == expected
