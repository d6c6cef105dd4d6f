"""Whole texts, each in one step, as slots and budget allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.queueing import WaitingReason
from engine.schedule.blocks import BlockCounts
from engine.schedule.whole_texts import WholeTextScheduler
from engine.step.sequence import Sequence
from engine.step.step import StepPlan


def scheduler(*, slots: int = 4, budget: int = 20, longest: int = 20) -> WholeTextScheduler:
    return WholeTextScheduler(
        max_model_len=longest, max_num_seqs=slots, max_num_batched_tokens=budget
    )


def text(uid: int, length: int, priority: int = 0) -> Sequence:
    params = SamplingParams(max_tokens=1)
    return Sequence(uid, f"r{uid}", [1] * length, length, params, priority=priority)


def uids(plan: StepPlan) -> list[int]:
    return [item.sequence.uid for item in plan.scheduled]


def finish(texts: WholeTextScheduler, plan: StepPlan) -> None:
    for item in plan.scheduled:
        texts.update(item, None, 0.0)
        texts.finish(item.sequence)


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=7),
    slots=st.integers(1, 4),
    budget=st.integers(1, 40),
)
def test_each_text_is_computed_once_whole_and_in_order_of_arrival(
    lengths: list[int], slots: int, budget: int
) -> None:
    texts = scheduler(slots=slots, budget=budget)
    for uid, length in enumerate(lengths):
        texts.add(text(uid, length))
    computed: list[int] = []
    while texts.has_work:
        plan = texts.schedule(1.0)
        assert 0 < len(plan.scheduled) <= slots
        assert plan.num_tokens <= max(budget, 20)  # a text of the longest kind must fit
        assert all((item.start, item.completes) == (0, True) for item in plan.scheduled)
        computed += uids(plan)
        finish(texts, plan)
    assert computed == list(range(len(lengths)))
    assert texts.counters.prompt_tokens_computed == sum(lengths)


def test_no_sequence_overtakes_the_head_and_the_reason_it_waits_is_reported() -> None:
    texts = scheduler(slots=2)
    for uid, length in enumerate((15, 6, 5, 1)):
        texts.add(text(uid, length))
    first = texts.schedule(0.0)
    assert (uids(first), texts.waiting_reason) == ([0], WaitingReason.BUDGET)
    finish(texts, first)
    second = texts.schedule(0.0)
    assert (uids(second), texts.waiting_reason) == ([1, 2], WaitingReason.SLOTS)
    finish(texts, second)
    third = texts.schedule(0.0)
    assert (uids(third), texts.waiting_reason) == ([3], None)
    assert texts.counters.steps == 3


def test_more_urgent_texts_come_first() -> None:
    texts = scheduler(slots=1)
    texts.add(text(1, 5))
    texts.add(text(2, 5, priority=-1))
    assert uids(texts.schedule(0.0)) == [2]


def test_a_sequence_that_skips_a_step_keeps_its_slot() -> None:
    texts = scheduler(slots=2)
    for uid in (1, 2, 3):
        texts.add(text(uid, 3))
    assert uids(texts.schedule(0.0)) == [1, 2]
    assert uids(texts.schedule(1.0, {1})) == [2]
    assert (texts.num_running, texts.num_waiting) == (2, 1)
    assert uids(texts.schedule(2.0, {1, 2})) == []
    assert texts.counters.steps == 2  # an empty plan does not count as a step


def test_a_text_can_be_taken_back_while_it_waits_and_while_it_runs() -> None:
    texts = scheduler(slots=1)
    running, waiting = text(1, 3), text(2, 3)
    texts.add(running)
    texts.add(waiting)
    texts.schedule(0.0)
    texts.finish(waiting)
    assert (texts.num_running, texts.num_waiting) == (1, 0)
    texts.finish(running)
    assert not texts.has_work


@pytest.mark.parametrize("length", [0, 21])
def test_a_sequence_that_could_never_run_is_refused(length: int) -> None:
    texts = scheduler()
    with pytest.raises(ValueError, match=f"a text of {length} tokens; 1 to 20 can run"):
        texts.add(text(1, length))
    assert not texts.has_work


def test_no_blocks_are_held_or_needed() -> None:
    texts = scheduler()
    texts.add(text(1, 3))
    texts.schedule(0.0)
    assert texts.block_counts() == BlockCounts(0, 0, 0)
    assert texts.lend_blocks() == []
