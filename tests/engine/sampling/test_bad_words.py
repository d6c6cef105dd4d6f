"""Bad words forbid the tokens that would end one of them, and cost little."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.bad_words import BadWords
from tests.examples import examples

CPU = torch.device("cpu")
WORDS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=12)


class CountedTokens(list[int]):
    """Counts how many tokens are looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)


@settings(max_examples=examples(300), deadline=None)
@given(WORDS, st.lists(st.integers(0, 3), max_size=10))
def test_bad_words_forbid_what_ends_one_of_them(words: list[list[int]], text: list[int]) -> None:
    subject = BadWords(words, 3, CPU)  # token 3 is beyond the vocabulary
    found = {*subject.alone.tolist(), *subject.ending(text)}
    expected = {
        last for *start, last in words if last < 3 and text[len(text) - len(start) :] == start
    }
    assert found == expected


def test_a_step_looks_at_no_more_tokens_than_the_longest_bad_word_has() -> None:
    words = [[first, *range(100, 130), 7] for first in range(64)]
    subject = BadWords(words, 200, CPU)
    text = CountedTokens([5, *range(100, 130)])
    assert subject.ending(text) == [7]
    assert text.looks <= 32
