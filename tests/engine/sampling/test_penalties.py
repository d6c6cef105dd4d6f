"""Token counts follow their sequence as it grows; penalties are those of their definitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.sampling.penalties import TokenCounts, apply_penalties
from engine.step.sequence import Sequence
from tests.examples import examples

TOKENS = st.lists(st.integers(0, 500), max_size=150)


def sequence(prompt: list[int], output: list[int], **wanted: Any) -> Sequence:
    params = SamplingParams(max_tokens=999, **wanted)
    return Sequence(1, "r", prompt + output, len(prompt), params)


def counted(subject: Sequence) -> TokenCounts:
    counts = TokenCounts(subject.token_ids[: subject.num_prompt_tokens])
    counts.update(subject)
    return counts


@settings(max_examples=examples(60))
@given(TOKENS, st.lists(TOKENS, max_size=4))
def test_counts_do_not_depend_on_how_the_output_was_split(
    prompt: list[int], portions: list[list[int]]
) -> None:
    counts = TokenCounts(prompt)
    output: list[int] = []
    for portion in portions:
        output += portion
        places = counts.update(sequence(prompt, output))
        assert counts.tokens[places].tolist() == portion
        assert counts.update(sequence(prompt, output)) == []
    expected = Counter(dict.fromkeys(prompt, 0))
    expected.update(output)
    assert counts.tokens.tolist() == list(dict.fromkeys(prompt + output))
    assert dict(zip(counts.tokens.tolist(), counts.counts.tolist(), strict=True)) == expected


def test_counts_grow_with_an_output_of_many_different_tokens() -> None:
    counts = counted(sequence([7], list(range(1000))))
    assert counts.tokens.tolist() == list(dict.fromkeys([7, *range(1000)]))
    assert counts.counts.tolist() == [1.0] * 1000


def test_each_penalty_by_hand() -> None:
    """Token 1 is in the prompt only, 2 in the output twice, 3 in both."""
    prompt, output = [1, 3], [2, 3, 2]
    logits = torch.tensor([[4.0, 4.0, 4.0, -4.0]]).repeat(4, 1)
    subjects = [
        sequence(prompt, output, repetition_penalty=2.0),
        sequence(prompt, output, frequency_penalty=0.5),
        sequence(prompt, output, presence_penalty=0.5),
        sequence(prompt, output, repetition_penalty=2.0, frequency_penalty=-1.0),
    ]
    apply_penalties(logits, range(4), subjects, [counted(subject) for subject in subjects])
    assert logits.tolist() == [
        [4.0, 2.0, 2.0, -8.0],
        [4.0, 4.0, 3.0, -4.5],
        [4.0, 4.0, 3.5, -4.5],
        [4.0, 2.0, 4.0, -7.0],
    ]


def test_only_the_named_rows_are_penalised_each_by_its_own_sequence() -> None:
    logits = torch.ones(3, 4)
    last = sequence([], [0], presence_penalty=1.0)
    first = sequence([], [2, 2], frequency_penalty=1.0)
    apply_penalties(logits, [2, 0], [last, first], [counted(last), counted(first)])
    assert logits.tolist() == [[1, 1, -1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]
