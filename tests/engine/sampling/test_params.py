"""A single sequence's parameters are classified as they are in a batch."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from engine.messages import SamplingParams
from engine.sampling.params import build_batch, has_tables, is_plain_greedy, sequence_tables
from engine.step.grammar_state import GrammarState
from engine.step.sequence import Sequence


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"top_k": 5, "top_p": 0.5, "seed": 3, "stop_token_ids": (1,), "prompt_logprobs": 2},
        {"temperature": 1e-6},
        {"temperature": 0.5},
        {"logprobs": 0},
        {"logit_bias": {3: 1.0}},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 1.1},
        {"allowed_tokens": b""},
        {"bad_words_token_ids": ((1,),)},
        {"min_tokens": 1},
    ],
)
def test_a_sequence_is_plainly_greedy_if_a_batch_of_it_alone_is(asked: dict[str, Any]) -> None:
    params = SamplingParams(**({"max_tokens": 5, "temperature": 0.0} | asked))
    sequence = Sequence(1, "r", [1, 2], 2, params)
    device = torch.device("cpu")
    tables = None
    if has_tables(params):
        tables = sequence_tables(params, vocab_size=10, eos_token_ids=frozenset(), device=device)
    batch = build_batch([sequence], [tables], vocab_size=10, device=device)
    assert is_plain_greedy(sequence) == batch.plain_greedy


def test_a_sequence_that_a_grammar_guides_is_not_plainly_greedy() -> None:
    params = SamplingParams(max_tokens=5, temperature=0.0)
    guided = Sequence(1, "r", [1, 2], 2, params, grammar_state=cast(GrammarState, object()))
    assert not is_plain_greedy(guided)
