"""How many prompt tokens a step has that has nothing else to do."""

from __future__ import annotations

import pytest

from engine.schedule.step_length import StepLength


@pytest.mark.parametrize(
    ("token_seconds", "tokens"), [(0.001, 256), (0.0003, 256), (0.0001, 768), (0.00001, 7936)]
)
def test_a_step_takes_as_long_as_it_should_but_is_never_small(
    token_seconds: float, tokens: int
) -> None:
    length = StepLength(0.08)
    for _ in range(10):
        length.observe(length.tokens, length.tokens * token_seconds)
    assert length.tokens == tokens


def test_steps_grow_at_most_twofold() -> None:
    length = StepLength(0.1)
    tokens = []
    for _ in range(4):
        tokens.append(length.tokens)
        length.observe(length.tokens, 0.0)
    assert tokens == [256, 512, 1024, 2048]


def test_a_slow_step_is_made_up_for_by_the_next() -> None:
    length = StepLength(0.1)
    length.observe(512, 0.05)
    assert length.tokens == 1024
    length.observe(1024, 5.0)  # the machine did something else
    assert length.tokens == 256
    length.observe(256, 0.025)
    assert length.tokens == 512


def test_what_few_tokens_take_says_nothing() -> None:
    length = StepLength(0.1)
    length.observe(512, 0.05)
    length.observe(10, 0.05)
    assert length.tokens == 1024
