"""A sequence's state is read as often as a step runs, and is gone when it is of no use."""

from __future__ import annotations

import pytest

from engine.messages import SamplingParams
from engine.plugin.states import StateLostError, StatePool
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence


def sequence(uid: int) -> Sequence:
    params = SamplingParams(max_tokens=1)
    return Sequence(uid, f"r{uid}", [3] * 20, num_prompt_tokens=20, params=params)


def item(of: Sequence, start: int, count: int) -> ScheduledSequence:
    return ScheduledSequence(of, start, count, completes=False)


def advance(pool: StatePool, *items: ScheduledSequence) -> list[list[int]]:
    """Run a step: each state lists the positions that it has seen."""
    states: list[list[int]] = pool.begin(items)
    for state, each in zip(states, items, strict=True):
        state.extend(range(each.start, each.end))
    return states


def test_a_state_continues_and_a_repeated_step_starts_from_the_same() -> None:
    pool, one, other = StatePool(list), sequence(1), sequence(2)
    advance(pool, item(one, 0, 5), item(other, 0, 2))
    for _ in range(3):
        assert advance(pool, item(one, 5, 2)) == [list(range(7))]
    assert advance(pool, item(one, 7, 1), item(other, 2, 1)) == [list(range(8)), [0, 1, 2]]
    assert advance(pool, item(other, 2, 1)) == [[0, 1, 2]]  # retried alone


def test_a_step_that_failed_half_way_leaves_no_trace() -> None:
    pool, one = StatePool(list), sequence(1)
    advance(pool, item(one, 0, 5))
    [broken] = pool.begin([item(one, 5, 3)])
    broken.append("half")
    assert advance(pool, item(one, 5, 3)) == [list(range(8))]


def test_a_sequence_has_at_most_two_states() -> None:
    pool, one = StatePool(list), sequence(1)
    for start in range(9):
        advance(pool, item(one, start, 1))
        assert pool.num_states <= 2
    pool.forget(1)
    assert pool.num_states == 0
    pool.forget(1)


def test_a_preempted_sequence_begins_anew_and_its_states_are_dropped_at_the_next_step() -> None:
    pool, one, other = StatePool(list), sequence(1), sequence(2)
    advance(pool, item(one, 0, 5), item(other, 0, 1))
    one.num_preemptions += 1
    advance(pool, item(other, 1, 1))
    assert pool.num_states == 2  # the other's
    assert advance(pool, item(one, 0, 3)) == [[0, 1, 2]]


def test_tokens_without_a_state_before_them_are_an_error() -> None:
    pool = StatePool(list)
    with pytest.raises(StateLostError, match="no state of r1 after 16 tokens"):
        pool.begin([item(sequence(1), 16, 1)])
