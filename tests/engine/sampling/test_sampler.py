"""The sampler draws from the distribution that a plain reference computes, row by row."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import RefusedError
from engine.messages import (
    SamplingParams,
    token_mask,
)
from engine.sampling.random import uniforms
from engine.sampling.sampler import Sampler, SamplingError
from engine.step.step import SampledToken
from tests.engine.sampling.reference import distribution, mask_tokens
from tests.engine.sampling.rows import (
    EOS,
    OUTPUT,
    PROMPT,
    VOCABULARY,
    params,
    sampler,
    sequence,
    some_logits,
)
from tests.examples import examples

pytestmark = pytest.mark.integration

DRAWS = 4000


def tokens_of(results: list[SampledToken | SamplingError]) -> list[int]:
    assert all(isinstance(result, SampledToken) for result in results)
    return [result.token_id for result in results if isinstance(result, SampledToken)]


SETTINGS = {
    "plain": {},
    "hot": {"temperature": 1.7},
    "cold": {"temperature": 0.4},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "tight_top_p": {"top_p": 0.01},
    "min_p": {"min_p": 0.15},
    "all_filters": {"temperature": 1.4, "top_k": 12, "top_p": 0.85, "min_p": 0.02},
    "top_k_then_top_p": {"top_k": 4, "top_p": 0.7},
    "repetition": {"repetition_penalty": 1.8},
    "reward_for_repetition": {"repetition_penalty": 0.6},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.9, "temperature": 1.5},
    "negative_penalties": {"frequency_penalty": -0.7, "presence_penalty": -0.5},
    "all_penalties": {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "top_p": 0.9,
    },
    "bias": {"logit_bias": {9: 3.0, 20: -100.0, 39: 2.5}},
    "allowed": {"allowed_tokens": token_mask((1, 9, 17, 30))},
    "bad_words": {"bad_words_token_ids": ((12,), (9, 10, 20), (8, 21), (10, 22))},
    "min_tokens": {"min_tokens": 6, "stop_token_ids": frozenset((9, 30))},
    "min_tokens_reached": {"min_tokens": 5, "stop_token_ids": frozenset((9, 30))},
    "everything": {
        "temperature": 1.3,
        "top_k": 15,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {9: 2.0, 30: 1.0},
        "bad_words_token_ids": ((10, 25),),
        "min_tokens": 9,
        "stop_token_ids": frozenset((1,)),
    },
}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_draws_follow_the_reference_distribution(name: str) -> None:
    """Chi-squared, over seeds; the level is strict because 21 settings are tried."""
    from scipy import stats  # slow to import

    logits = some_logits(seed=len(name))
    wanted = SETTINGS[name]
    expected = distribution(logits[0].numpy(), params(**wanted), PROMPT, OUTPUT, EOS)
    rows = [sequence(seed, params(seed=seed, **wanted)) for seed in range(DRAWS)]
    drawn = tokens_of(sampler().sample(logits.expand(DRAWS, -1).clone(), rows))
    counts = np.bincount(drawn, minlength=VOCABULARY)
    assert counts[expected == 0].sum() == 0
    likely = expected * DRAWS >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    hoped = np.append(expected[likely], expected[~likely].sum()) * DRAWS
    if hoped[-1] < 1e-9:
        observed, hoped = observed[:-1], hoped[:-1]
    assert likely.any()
    if len(hoped) > 1:
        assert stats.chisquare(observed, hoped).pvalue > 1e-4


def test_draws_follow_the_distribution_over_positions_of_one_seed_too() -> None:
    from scipy import stats  # slow to import

    logits = some_logits(seed=5)
    wanted = params(seed=42, temperature=1.2, top_p=0.9)
    rows = [sequence(i, wanted, output=[1] * i) for i in range(2000)]
    drawn = Counter(tokens_of(sampler().sample(logits.expand(2000, -1).clone(), rows)))
    expected = distribution(logits[0].numpy(), wanted, PROMPT, []) * 2000
    kept = np.flatnonzero(expected)
    assert set(drawn) <= set(kept.tolist())
    observed = [drawn[token] for token in kept.tolist()]
    assert stats.chisquare(observed, expected[kept]).pvalue > 1e-3


one_row = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**63 - 1)},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        "top_k": st.integers(0, VOCABULARY + 5),
        "top_p": st.floats(0.05, 1.0),
        "min_p": st.floats(0.0, 0.5),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.5, 2.0),
        "logit_bias": st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-5, 5), max_size=3),
        "min_tokens": st.integers(0, 8),
        "stop_token_ids": st.frozensets(st.integers(0, VOCABULARY - 1), max_size=3),
        "allowed_tokens": st.lists(st.integers(0, VOCABULARY - 1), min_size=8, max_size=20).map(
            token_mask
        ),
        "bad_words_token_ids": st.lists(
            st.lists(st.integers(4, 12), min_size=1, max_size=3).map(tuple), max_size=3
        ).map(tuple),
        "logprobs": st.integers(0, 5),
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(one_row, min_size=2, max_size=8), st.integers(0, 1000))
def test_batch_mates_change_nothing(rows: list[dict[str, Any]], seed: int) -> None:
    logits = some_logits(seed, len(rows))
    sequences = [sequence(i, params(**row)) for i, row in enumerate(rows)]
    together = sampler().sample(logits.clone(), sequences)
    for i, alone in enumerate(sequences):
        [result] = sampler().sample(logits[i : i + 1].clone(), [alone])
        if isinstance(result, SamplingError):
            assert isinstance(together[i], SamplingError)
            assert str(together[i]) == str(result)
        else:
            assert together[i] == result


@settings(max_examples=examples(150), deadline=None)
@given(one_row, st.integers(0, 1000))
def test_the_drawn_token_is_the_reference_quantile_of_the_rows_uniform(
    row: dict[str, Any], seed: int
) -> None:
    logits = some_logits(seed)
    wanted = params(**row)
    subject = sequence(1, wanted)
    [result] = sampler().sample(logits.clone(), [subject])
    if isinstance(result, SamplingError):
        restricted = distribution_support(wanted)
        assert not restricted
        return
    expected = distribution(logits[0].double().numpy(), wanted, PROMPT, OUTPUT, EOS)
    if wanted.temperature == 0:
        assert expected[result.token_id] == 1
        return
    [uniform] = uniforms(
        np.array([wanted.seed], np.uint64), np.array([subject.num_tokens], np.uint64)
    )
    edges = np.cumsum(expected)
    low = edges[result.token_id] - expected[result.token_id]
    # A filter's edge may fall on the other side in float32; such a case shifts all edges.
    assert low - 0.02 <= uniform <= edges[result.token_id] + 0.02


def distribution_support(wanted: SamplingParams) -> set[int]:
    """Tokens that the hard restrictions leave."""
    left = set(range(VOCABULARY))
    if wanted.allowed_tokens is not None:
        left &= mask_tokens(wanted.allowed_tokens)
    text = PROMPT + OUTPUT
    for *start, last in wanted.bad_words_token_ids:
        if text[len(text) - len(start) :] == start:
            left.discard(last)
    if len(OUTPUT) < wanted.min_tokens:
        left -= set(wanted.stop_token_ids) | EOS
    return left


def test_temperature_zero_takes_the_most_likely_token_after_penalties() -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 9], logits[0, 11] = 5.0, 4.0
    plain, penalised = params(temperature=0.0), params(temperature=0.0, frequency_penalty=0.5)
    rows = [sequence(1, plain), sequence(2, penalised)]
    results = sampler().sample(logits.expand(2, -1).clone(), rows)
    assert tokens_of(results) == [9, 11]


def test_a_temperature_near_zero_is_greedy_rather_than_infinite() -> None:
    logits = some_logits() * 50
    [token] = tokens_of(
        sampler().sample(logits.clone(), [sequence(1, params(temperature=1e-38, top_p=0.5))])
    )
    assert token == int(logits.argmax())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda row: row.__setitem__(4, math.nan), "not numbers"),
        (lambda row: row.__setitem__(4, math.inf), "infinite"),
        (lambda row: row.fill_(-math.inf), "no token"),
    ],
)
@pytest.mark.parametrize("wanted", [{"temperature": 0.0}, {"logprobs": 2}, {"top_p": 0.5}])
def test_a_row_without_a_choice_fails_alone(
    spoil: Any, reason: str, wanted: dict[str, Any]
) -> None:
    logits = some_logits(rows=3)
    spoil(logits[1])
    rows = [sequence(i, params(seed=i, **wanted)) for i in range(3)]
    results = sampler().sample(logits.clone(), rows)
    assert isinstance(results[1], SamplingError)
    assert not isinstance(results[1], RefusedError)  # not the request's fault: the model failed
    assert reason in str(results[1])
    for i in (0, 2):
        assert results[i] == sampler().sample(logits[i : i + 1].clone(), [rows[i]])[0]


def test_restrictions_that_contradict_each_other_fail_their_row() -> None:
    wanted = params(allowed_tokens=token_mask((12,)), bad_words_token_ids=((12,),))
    results = sampler().sample(
        some_logits(rows=2), [sequence(1, wanted), sequence(2, params(temperature=0.0))]
    )
    assert isinstance(results[0], RefusedError)
    assert isinstance(results[1], SampledToken)


def test_penalties_follow_a_sequence_as_it_grows_and_as_mates_come_and_go() -> None:
    subject = sampler()
    wanted = params(temperature=0.0, repetition_penalty=1.4, frequency_penalty=0.6)
    growing = sequence(1, wanted, prompt=[2, 3], output=[])
    mate = sequence(2, params(temperature=0.0, presence_penalty=1.0), prompt=[4], output=[])
    for step in range(60):
        logits = some_logits(step % 3, 2)
        rows = [mate, growing] if step % 4 == 0 else [growing]
        results = subject.sample(logits[: len(rows)].clone(), rows)
        token = tokens_of(results)[-1]
        expected = distribution(
            logits[len(rows) - 1].double().numpy(), wanted, [2, 3], growing.output_token_ids
        )
        assert token == int(expected.argmax())
        growing.token_ids.append(token)


def test_top_p_over_a_wide_flat_distribution_needs_more_than_the_first_candidates() -> None:
    width = 5000
    subject = Sampler(vocab_size=width, eos_token_ids=EOS, device=torch.device("cpu"))
    logits = torch.linspace(0, 0.5, width).expand(600, -1).clone()
    rows = [sequence(i, params(seed=i, top_p=0.5)) for i in range(600)]
    drawn = tokens_of(subject.sample(logits.clone(), rows))
    expected = distribution(logits[0].double().numpy(), rows[0].params, [], [])
    lowest = int(np.flatnonzero(expected)[0])
    assert abs(min(drawn) - lowest) < 100
    assert min(drawn) >= lowest - 1
    assert max(drawn) > width - 60
