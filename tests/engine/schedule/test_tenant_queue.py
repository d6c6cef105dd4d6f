"""One tenant's waiting sequences."""

from __future__ import annotations

import itertools

import pytest

from engine.messages import SamplingParams
from engine.schedule.tenant_queue import MOST_OUT_OF_TURN, TenantQueue
from engine.step.sequence import MOST_OVERTAKEN, Sequence

PARAMS = SamplingParams(max_tokens=1)


def sequence(uid: int, priority: int = 0) -> Sequence:
    return Sequence(uid, f"r{uid}", [1], 1, PARAMS, priority=priority)


def test_lower_priority_numbers_come_first_and_equal_ones_by_arrival() -> None:
    queue = TenantQueue()
    for uid, priority in [(0, 1), (1, 0), (2, 1), (3, 0), (4, -1)]:
        queue.push(sequence(uid, priority))
    assert [queue.pop().uid for _ in range(5)] == [4, 1, 3, 0, 2]


def test_a_preempted_sequence_goes_before_newcomers() -> None:
    queue = TenantQueue()
    first = sequence(0)
    queue.push(first)
    queue.push(sequence(1))
    queue.pop()
    queue.push(first)
    assert queue.head() is first


def test_discarded_sequences_are_passed_over() -> None:
    queue = TenantQueue()
    sequences = [sequence(uid) for uid in range(4)]
    for one in sequences:
        queue.push(one)
    queue.discard(sequences[0])
    queue.discard(sequences[2])
    assert len(queue) == 2
    assert sequences[0] not in queue
    assert [queue.pop().uid, queue.pop().uid] == [1, 3]
    assert queue.head() is None
    with pytest.raises(IndexError):
        queue.pop()


def test_discarded_sequences_are_not_remembered_behind_a_head_that_waits() -> None:
    queue = TenantQueue()
    queue.push(sequence(0))
    for uid in range(1, 10_001):
        one = sequence(uid)
        queue.push(one)
        queue.discard(one)
    assert len(queue._heap) < 200
    assert len(queue._by_age) < 200
    assert queue.pop().uid == 0


def test_the_one_that_came_first_gets_a_turn_however_many_go_ahead_of_it() -> None:
    queue = TenantQueue()
    low = [sequence(uid, priority=1000) for uid in range(3)]
    for one in low:
        queue.push(one)
    uids = itertools.count(3)
    taken = []
    for _ in range(3 * (MOST_OUT_OF_TURN + 1)):
        queue.push(sequence(next(uids), priority=-1000))
        queue.push(sequence(next(uids), priority=-1000))
        taken.append(queue.pop())
    turns = [place for place, one in enumerate(taken) if one in low]
    assert [taken[turn] for turn in turns] == low
    assert turns == [MOST_OUT_OF_TURN, 2 * MOST_OUT_OF_TURN + 1, 3 * MOST_OUT_OF_TURN + 2]
    assert queue.head() is not None
    assert len(queue._heap) + len(queue._by_age) <= 2 * (2 * len(queue) + 64)


def test_a_sequence_chosen_by_age_that_comes_back_is_queued_by_rank() -> None:
    queue = TenantQueue()
    first = sequence(0, priority=1)
    queue.push(first)
    for uid in range(1, MOST_OUT_OF_TURN + 3):
        queue.push(sequence(uid))
    taken = [queue.pop() for _ in range(MOST_OUT_OF_TURN + 1)]
    assert taken[-1] is first
    queue.push(first)
    rest = [queue.pop().uid for _ in range(3)]
    assert rest == [MOST_OUT_OF_TURN + 1, MOST_OUT_OF_TURN + 2, 0]
    assert len(queue) == 0
    assert queue.head() is None


def test_a_sequence_overtaken_too_often_goes_before_every_priority() -> None:
    queue = TenantQueue()
    patient = sequence(5, priority=1000)
    patient.num_overtaken = MOST_OVERTAKEN
    queue.push(sequence(0, priority=-1000))
    queue.push(patient)
    assert queue.pop() is patient
