"""What is sent to the device's sampler, and which sequences it does not sample."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from engine.messages import Embed, SamplingParams, token_mask
from engine.sampling.device import samples_on_device, sampling_tensors
from engine.step.grammar_state import GrammarState
from engine.step.sequence import Sequence

CPU = torch.device("cpu")


def params(**wanted: Any) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 9} | wanted))


def sequence(**wanted: Any) -> Sequence:
    """Of three tokens, two of which are output."""
    return Sequence(1, "r", [5, 6, 7], 1, params(**wanted))


def test_disabled_filters_are_marked_as_such() -> None:
    plain, all_on, too_wide = (
        params(temperature=0.5),
        params(temperature=0.5, min_p=0.25, top_k=3, top_p=0.75),
        params(top_k=100),
    )
    told = sampling_tensors([plain, all_on, too_wide], 100, CPU)
    assert told.temperature.tolist() == [0.5, 0.5, 1.0]
    assert told.log_min_p.tolist() == [-math.inf, pytest.approx(math.log(0.25)), -math.inf]
    assert told.top_k.tolist() == [0, 3, 0]
    assert told.top_p.tolist() == [1.0, 0.75, 1.0]


def test_seeds_keep_all_their_bits() -> None:
    seeds = [0, 1, 2**63 - 1]
    told = sampling_tensors([params(seed=seed) for seed in seeds], 100, CPU)
    assert told.seeds.dtype == torch.int64
    assert [seed % 2**64 for seed in told.seeds.tolist()] == seeds


def test_the_first_rows_are_views() -> None:
    told = sampling_tensors([params(top_k=1), params(top_k=2)], 100, CPU)
    first = told.rows(1)
    first.top_k[0] = 9
    assert told.top_k.tolist() == [9, 2]
    assert len(first.seeds) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 4},
        {"min_tokens": 2},  # it has them already
    ],
)
def test_temperature_and_filters_are_served_on_the_device(wanted: dict[str, Any]) -> None:
    assert samples_on_device(sequence(**wanted))


@pytest.mark.parametrize(
    "wanted",
    [
        {"logprobs": 0},
        {"allowed_tokens": token_mask((1, 2))},
        {"logit_bias": {3: 1.0}},
        {"bad_words_token_ids": ((4,),)},
        {"min_tokens": 3},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 1.1},
    ],
)
def test_any_other_parameter_needs_the_host(wanted: dict[str, Any]) -> None:
    assert not samples_on_device(sequence(**wanted))


def test_grammars_and_embeddings_need_the_host() -> None:
    constrained, embedding = sequence(), sequence()
    constrained.grammar_state = GrammarState("", frozenset())
    embedding.embed = Embed()
    assert not samples_on_device(constrained)
    assert not samples_on_device(embedding)
