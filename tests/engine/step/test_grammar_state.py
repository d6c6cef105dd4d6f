"""A sequence's place in its grammar: what work ends in, who waits for it, and how long."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from engine.step import grammar_state
from engine.step.grammar_state import PATIENCE_SECONDS, SLOW_SECONDS, GrammarState, Phase
from engine.step.mask import Allowed

NOTHING = np.zeros(2, dtype=np.uint32)
SOMETHING = np.array([0, 4], dtype=np.uint32)


class SetTime:
    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetTime:
    clock = SetTime()
    monkeypatch.setattr(grammar_state, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def state() -> GrammarState:
    return GrammarState("start: /a+/", frozenset({7}))


def test_work_that_finds_tokens_ends_ready_with_their_mask() -> None:
    ready = state()
    ready.begin_work()
    assert ready.is_working
    ready.allow(Allowed(SOMETHING, ends=True), SOMETHING)
    assert (ready.phase, ready.is_working) == (Phase.READY, False)
    assert ready.mask is SOMETHING


def test_without_tokens_the_text_is_whole_or_the_grammar_leads_nowhere() -> None:
    whole, stuck = state(), state()
    for each, ends in ((whole, True), (stuck, False)):
        each.begin_work()
        # The grammar's end is spelled by tokens that do not end this sequence.
        each.allow(Allowed(SOMETHING, ends=ends), NOTHING)
    assert (whole.phase, whole.error) == (Phase.COMPLETE, "")
    assert stuck.phase is Phase.FAILED
    assert stuck.error == "constraint: the grammar leaves no token to choose from"


def test_the_end_of_work_wakes_its_waiters() -> None:
    awaited = state()
    awaited.begin_work()
    waiting = threading.Event()
    answers: list[bool] = []

    def wait() -> None:
        waiting.set()
        answers.append(awaited.wait(time.monotonic() + 30))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(30)
    awaited.complete()
    thread.join(30)
    assert answers == [True]


def test_work_that_is_not_done_in_time_is_slow() -> None:
    late = state()
    assert late.wait(0.0)  # nothing is under way
    late.begin_work()
    assert not late.is_slow
    assert not late.wait(0.0)
    assert late.is_slow


def test_one_long_piece_of_work_makes_it_slow_and_many_quick_ones_in_a_row_quick_again(
    clock: SetTime,
) -> None:
    changing = state()

    def work(seconds: float) -> None:
        changing.begin_work()
        clock.now += seconds
        changing.allow(Allowed(SOMETHING, ends=False), SOMETHING)

    work(SLOW_SECONDS / 2)
    assert not changing.is_slow
    work(SLOW_SECONDS * 2)
    for _ in range(20):
        work(SLOW_SECONDS / 2)
    work(SLOW_SECONDS * 2)  # the row begins again
    for _ in range(20):
        work(SLOW_SECONDS / 2)
    assert changing.is_slow
    for _ in range(20):
        work(SLOW_SECONDS / 2)
    assert not changing.is_slow


def test_time_in_the_queue_is_not_counted_against_it(clock: SetTime) -> None:
    queued, alone = state(), state()
    queued.begin_work(queued=True)
    alone.begin_work()
    clock.now += PATIENCE_SECONDS * 1.1
    assert alone.is_overdue
    assert not queued.is_overdue
    queued.leave_queue()
    assert not queued.is_overdue
    clock.now += PATIENCE_SECONDS * 1.1
    assert queued.is_overdue
    queued.join_queue()
    assert not queued.is_overdue
    queued.leave_queue()
    clock.now += PATIENCE_SECONDS * 1.1
    assert queued.is_overdue
    queued.fail("it takes too long")
    assert not queued.is_overdue
