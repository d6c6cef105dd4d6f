"""A sequence's state is read as often as a step runs, and is gone when it is of no use."""

from __future__ import annotations

import pytest
import torch

from engine.messages import SamplingParams
from engine.plugin.states import StateLostError, StatePool
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence


def sequence(uid: int) -> Sequence:
    params = SamplingParams(max_tokens=1)
    return Sequence(uid, f"r{uid}", [3] * 20, num_prompt_tokens=20, params=params)


def item(of: Sequence, start: int, count: int, **slots: int) -> ScheduledSequence:
    return ScheduledSequence(of, start, count, completes=False, **slots)


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


def test_a_sequence_continues_from_a_state_that_another_left_in_a_slot() -> None:
    pool, one, other = StatePool(list), sequence(1), sequence(2)
    advance(pool, item(one, 0, 5, saves=3))
    advance(pool, item(one, 5, 2))  # which works on a copy
    pool.forget(1)
    assert len(pool._slots) == 1
    for _ in range(2):
        assert advance(pool, item(other, 5, 2, restores=3)) == [list(range(7))]
    assert advance(pool, item(other, 7, 1)) == [list(range(8))]
    assert advance(pool, item(sequence(3), 5, 1, restores=3)) == [list(range(6))]


def test_a_slot_that_gets_another_state_is_read_before() -> None:
    pool, one, other, third = StatePool(list), sequence(1), sequence(2), sequence(3)
    advance(pool, item(one, 0, 5, saves=0))
    step = (item(other, 0, 2, saves=0), item(third, 5, 1, restores=0))
    for _ in range(2):  # the step may run again
        assert advance(pool, *step) == [[0, 1], list(range(6))]
    assert advance(pool, item(sequence(4), 2, 1, restores=0)) == [[0, 1, 2]]
    assert len(pool._slots) == 1


def test_an_empty_slot_is_an_error() -> None:
    with pytest.raises(StateLostError, match="after 8 tokens"):
        StatePool(list).begin([item(sequence(1), 8, 1, restores=0)])


def test_memory_is_that_of_the_newest_state_s_tensors() -> None:
    class Layer:
        def __init__(self) -> None:
            self.conv = {0: torch.zeros(8, dtype=torch.float32), 1: None}
            self.again = [self.conv[0]]
            self.whole = torch.zeros(10, 4, dtype=torch.float16)
            self.part = self.whole[2:3]
            self.itself = self

    pool, one = StatePool(Layer), sequence(1)
    pool.begin([item(one, 0, 1)])
    assert pool.num_bytes(1) == 8 * 4 + 40 * 2
