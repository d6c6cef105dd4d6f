"""The queue of sequences that want to run."""

from __future__ import annotations

import pytest

from engine.messages import SamplingParams
from engine.sequence import Sequence
from engine.waiting import WaitingQueue

PARAMS = SamplingParams(max_tokens=1)


def sequence(uid: int, priority: int = 0) -> Sequence:
    return Sequence(uid, f"r{uid}", [1], 1, PARAMS, priority=priority)


def test_lower_priority_numbers_come_first_and_equal_ones_by_arrival() -> None:
    queue = WaitingQueue()
    for uid, priority in [(0, 1), (1, 0), (2, 1), (3, 0), (4, -1)]:
        queue.push(sequence(uid, priority))
    assert [queue.pop().uid for _ in range(5)] == [4, 1, 3, 0, 2]


def test_a_preempted_sequence_goes_before_newcomers() -> None:
    queue = WaitingQueue()
    first = sequence(0)
    queue.push(first)
    queue.push(sequence(1))
    queue.pop()
    queue.push(first)
    assert queue.head() is first


def test_discarded_sequences_are_passed_over() -> None:
    queue = WaitingQueue()
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
    queue = WaitingQueue()
    queue.push(sequence(0))
    for uid in range(1, 10_001):
        one = sequence(uid)
        queue.push(one)
        queue.discard(one)
    assert len(queue._heap) < 200
    assert queue.pop().uid == 0
