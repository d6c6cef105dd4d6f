"""The sampler is left out only where it would choose the wanted token anyway."""

from __future__ import annotations

from typing import Any

import pytest

from engine.messages import SamplingParams, token_mask
from engine.simulation.certainty import is_certain
from engine.step.grammar_state import GrammarState
from engine.step.sequence import Sequence
from tests.engine.simulation.simulated_engine import SimulatedEngine, prompt


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 1.0, "min_p": 0.5},
    ],
)
def test_the_sampler_is_spared_only_where_it_would_say_the_same(settings: dict[str, Any]) -> None:
    """Asking for logprobs makes it look at every row."""
    engine = SimulatedEngine("simulated:instant,output=60")
    prompts = [prompt(9, first) for first in range(100, 120)]
    spared = engine.generate(prompts, SamplingParams(max_tokens=60, seed=3, **settings))
    asked = engine.generate(prompts, SamplingParams(max_tokens=60, seed=3, logprobs=0, **settings))
    assert [each.token_ids for each in spared] == [each.token_ids for each in asked]
    assert all(len(each.logprobs) == 60 for each in asked)


def test_a_high_temperature_scatters_as_with_a_model() -> None:
    engine = SimulatedEngine("simulated:instant,output=60")
    hot = SamplingParams(max_tokens=60, temperature=100.0, seed=3, ignore_eos=True)
    calm = SamplingParams(max_tokens=60, seed=3, ignore_eos=True)
    outputs = engine.generate([prompt(9)] * 2, [hot, calm])
    assert outputs[0].token_ids != outputs[1].token_ids


def sequence(**settings: Any) -> Sequence:
    return Sequence(1, "", [1], 1, SamplingParams(max_tokens=9, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"logprobs": 0},
        {"temperature": 2.1},
        {"logit_bias": {5: 1.0}},
        {"bad_words_token_ids": ((5,),)},
        {"min_tokens": 1},
        {"allowed_tokens": token_mask((5,))},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 1.1},
    ],
)
def test_any_parameter_that_could_change_the_choice_needs_the_sampler(
    settings: dict[str, Any],
) -> None:
    assert is_certain(sequence())
    assert not is_certain(sequence(**settings))


def test_a_grammar_is_left_to_the_sampler() -> None:
    guided = sequence()
    guided.grammar_state = GrammarState("start: /a/", frozenset())
    assert not is_certain(guided)
