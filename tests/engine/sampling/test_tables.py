"""What a sequence's lists of tokens cost: made once, and looked at no more than needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence as Items
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import SamplingParams, token_mask
from engine.sampling import sampler as sampler_module
from engine.sampling.sampler import Sampler
from engine.step.sequence import Sequence
from tests.engine.sampling.reference import mask_tokens

CPU = torch.device("cpu")


@given(st.lists(st.integers(0, 300), max_size=20))
def test_a_mask_holds_each_token_once(token_ids: list[int]) -> None:
    mask = token_mask(token_ids)
    assert mask_tokens(mask) == set(token_ids)
    assert len(mask) <= 38


def test_a_million_repeated_tokens_make_a_small_mask() -> None:
    assert len(token_mask(list(range(200)) * 5000)) == 25


def test_tables_are_built_once_per_sequence_in_any_batch(
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
