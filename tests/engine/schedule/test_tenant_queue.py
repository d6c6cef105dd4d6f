"""One tenant's waiting sequences."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.schedule.tenant_queue import MOST_OUT_OF_TURN, TenantQueue
from engine.step.sequence import MOST_OVERTAKEN, Sequence

PARAMS = SamplingParams(max_tokens=1)
WITH_LOGPROBS = SamplingParams(max_tokens=1, prompt_logprobs=0)
LOGPROB_WORK = 2.3


def sequence(
    uid: int, priority: int = 0, tokens: int = 1, params: SamplingParams = PARAMS
) -> Sequence:
    return Sequence(uid, f"r{uid}", [1] * tokens, tokens, params, priority=priority)


def work_of(one: Sequence) -> int:
    return math.ceil(one.num_tokens * (LOGPROB_WORK if one.params is WITH_LOGPROBS else 1))


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
    assert sum(map(len, queue._by_work.values())) < 200
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


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_foremost_of_some_work_is_found_among_those_that_come_go_and_return(seed: int) -> None:
    queue, rng = TenantQueue(LOGPROB_WORK), random.Random(seed)
    members: dict[int, Sequence] = {}
    away: list[Sequence] = []
    for uid in range(300):
        chance = rng.random()
        if chance < 0.5 or not members:
            params = rng.choice([PARAMS, WITH_LOGPROBS])
            one = sequence(uid, rng.choice([0, 0, 1]), rng.randrange(1, 70), params)
        elif chance < 0.7 and away:
            one = away.pop()
            one.token_ids += [2] * rng.randrange(40)  # it ran meanwhile
        else:
            one = queue.pop() if rng.random() < 0.5 else rng.choice(list(members.values()))
            if one in queue:
                queue.discard(one)
            away.append(members.pop(one.uid))
            continue
        queue.push(one)
        members[one.uid] = one
        most = rng.randrange(1, 110)
        short = [each for each in members.values() if work_of(each) <= most]
        ranked = sorted(members.values(), key=lambda each: each.rank)
        similar = [each for each in ranked if work_of(each).bit_length() == most.bit_length()]
        short = [each for each in short if each in similar[:1] or each not in similar]
        first = min(short, key=lambda each: each.rank, default=None)
        if first is not None and first.rank[:2] > ranked[0].rank[:2]:
            first = None
        assert queue.foremost_of(most) is first
