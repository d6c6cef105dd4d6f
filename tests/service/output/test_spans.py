"""Which tokens made a text, derived from its offsets."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from service.output.spans import TokenSpans

# Characters in each piece, and how many tokens it took: some tokens add no text.
PIECES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=12)


@given(pieces=PIECES, data=st.data())
def test_offsets_in_rising_order_give_the_tokens_that_made_the_text_before(
    pieces: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The oracle counts, for each character, the tokens there were when it was complete."""
    spans = TokenSpans()
    made = [0]
    tokens = 0
    for characters, took in pieces:
        tokens += took
        spans.push(characters, tokens)
        made += [tokens] * characters
    assert spans.total == len(made) - 1
    offsets = data.draw(st.lists(st.integers(1, spans.total), max_size=8))
    for offset in sorted(offsets):
        if data.draw(st.booleans()):
            whole = set(made[: offset + 1]) - set(made[offset + 1 :])
            assert spans.tokens_within(offset) == max(whole)
        assert spans.tokens_before(offset) == made[offset]


@given(pieces=st.lists(st.integers(1, 4), min_size=1, max_size=8), data=st.data())
def test_a_stretch_is_one_piece_where_one_token_completed_it(
    pieces: list[int], data: st.DataObject
) -> None:
    spans = TokenSpans()
    for tokens, characters in enumerate(pieces, start=1):
        spans.push(characters, tokens)
    ends = list(itertools.accumulate(pieces))
    passed = data.draw(st.integers(0, spans.total - 1))
    if passed:
        spans.tokens_before(passed)  # what lies before is forgotten, what comes is not
    offset = data.draw(st.integers(passed, spans.total - 1))
    size = data.draw(st.integers(1, 5))
    inside = [end for end, length in zip(ends, pieces, strict=True) if end - length <= offset < end]
    assert spans.is_one_piece(offset, size) == (offset + size <= inside[0])


def test_a_text_that_is_over_belongs_to_the_last_token() -> None:
    spans = TokenSpans()
    assert spans.tokens_before(0) == 0
    spans.push(3, 2)
    assert spans.tokens_before(3) == 2
    assert not spans.is_one_piece(3, 1)
    spans.push(1, 5)
    assert spans.is_one_piece(3, 1)
    assert spans.tokens_before(4) == 5


def test_an_offset_ahead_is_looked_up_without_losing_those_before_it() -> None:
    spans = TokenSpans()
    for number in range(1, 4):
        spans.push(2, number)
    assert [spans.tokens_ahead(offset) for offset in (3, 4, 6, 9)] == [2, 2, 3, 3]
    assert spans.tokens_before(2) == 1
