"""What a sequence's lists of tokens cost: made once, and looked at no more than needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence as Items
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams, token_mask
from engine.sampling import sampler as sampler_module
from engine.sampling.bad_words import BadWords
from engine.sampling.sampler import Sampler
from engine.step.sequence import Sequence
from tests.engine.sampling.reference import mask_tokens

CPU = torch.device("cpu")
WORDS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=12)


class CountedTokens(list[int]):
    """Counts how many tokens are looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)


@settings(max_examples=300, deadline=None)
@given(WORDS, st.lists(st.integers(0, 3), max_size=10))
def test_bad_words_forbid_what_ends_one_of_them(words: list[list[int]], text: list[int]) -> None:
    subject = BadWords(words, 3, CPU)  # token 3 is beyond the vocabulary
    ending = subject.ending(text)
    found = {*subject.alone.tolist(), *([] if ending is None else ending.tolist())}
    expected = {
        last for *start, last in words if last < 3 and text[len(text) - len(start) :] == start
    }
    assert found == expected


def test_a_step_looks_at_no_more_tokens_than_the_longest_bad_word_has() -> None:
    words = [[first, *range(100, 130), 7] for first in range(64)]
    subject = BadWords(words, 200, CPU)
    text = CountedTokens([5, *range(100, 130)])
    ending = subject.ending(text)
    assert ending is not None
    assert ending.tolist() == [7]
    assert text.looks <= 32


@given(st.lists(st.integers(0, 300), max_size=20))
def test_a_mask_holds_each_token_once(token_ids: list[int]) -> None:
    mask = token_mask(token_ids)
    assert mask_tokens(mask) == set(token_ids)
    assert len(mask) <= 38


def test_a_million_repeated_tokens_make_a_small_mask() -> None:
    assert len(token_mask(list(range(200)) * 5000)) == 25


def test_tables_are_made_once_for_a_sequence_whatever_its_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[SamplingParams] = []
    original = sampler_module.sequence_tables

    def counted(params: SamplingParams, **options: Any) -> Any:
        made.append(params)
        return original(params, **options)

    monkeypatch.setattr(sampler_module, "sequence_tables", counted)
    listing = SamplingParams(
        max_tokens=9,
        temperature=0.0,
        allowed_tokens=token_mask([1, 2, 9]),
        bad_words_token_ids=((9,), (5, 1)),
        logit_bias={2: 1.0},
    )
    plain = SamplingParams(max_tokens=9, temperature=0.0)
    subject = Sampler(vocab_size=10, eos_token_ids=frozenset(), device=CPU)
    steady = Sequence(1, "r", [5], 1, listing)

    def tokens(company: Items[Sequence]) -> list[int]:
        logits = torch.arange(10.0).repeat(len(company), 1)
        return [one.token_id for one in subject.sample(logits, company)]  # type: ignore[union-attr]

    assert tokens([steady]) == [2]
    for uid in range(2, 6):
        assert tokens([Sequence(uid, "r", [5], 1, plain), steady]) == [9, 2]
    assert made == [listing]
    subject.forget(1)
    assert tokens([steady]) == [2]
    assert len(made) == 2
    assert sys.getsizeof(listing.allowed_tokens) < 64
