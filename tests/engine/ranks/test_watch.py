"""Who is judged to have failed or to hang, from what was heard and when."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.ranks.messages import RankFailed, RankProgress
from engine.ranks.watch import RANK_TICK_SECONDS, OwnState, RankLimits, RankState, Watch

LIMITS = RankLimits(silence=15.0, stall=60.0, loading_stall=900.0, alone=5.0)


class Watched:
    """Rank 0 and two others, with a fake clock."""

    def __init__(self, *, loaded: bool = True) -> None:
        self.begin = self.now = time.monotonic()
        nobody: Any = None  # neither process nor channel is used by the watch
        self.ranks = [
            RankState(number, nobody, nobody, self.now, has_arrived=True, has_loaded=loaded)
            for number in (1, 2)
        ]
        self.own = OwnState(step=3, is_busy=True)
        self.own_calls = 0
        self.own.calls = lambda: self.own_calls
        self.watch = Watch(LIMITS, self.ranks, self.own)

    def pass_time(self, seconds: float, *, beating: tuple[int, ...] = (1, 2)) -> str | None:
        """Tick by tick. The first verdict, if there is one."""
        end = self.now + seconds
        while self.now < end:
            self.now += RANK_TICK_SECONDS
            for rank in self.ranks:
                if rank.number in beating:
                    rank.heard = self.now
            verdict = self.watch.verdict(self.now)
            if verdict is not None:
                return verdict
        return None

    @property
    def passed(self) -> float:
        return self.now - self.begin

    def fail(self, number: int, *, step: int, calls: int = 0, by_others: bool = False) -> None:
        rank = self.ranks[number - 1]
        rank.failed, rank.failed_at = RankFailed(step, calls, "ValueError: no", by_others), self.now


def test_a_silent_rank_is_named_once_it_has_loaded() -> None:
    watched = Watched()
    watched.own.is_busy = False
    assert watched.pass_time(30) is None
    assert watched.pass_time(20, beating=(1,)) == "no sign of life from rank 2 for 15 s"
    loading = Watched(loaded=False)
    assert loading.pass_time(100, beating=()) is None


def test_a_pause_of_this_process_is_not_blamed_on_any_rank() -> None:
    watched = Watched()
    assert watched.pass_time(1) is None
    watched.now += 300  # a frozen container
    assert watched.watch.verdict(watched.now) is None
    assert watched.pass_time(14, beating=(1,)) is None
    assert watched.pass_time(2, beating=(1,)) == "no sign of life from rank 2 for 15 s"


def test_a_step_that_gets_nowhere_is_blamed_on_the_rank_behind() -> None:
    watched = Watched()
    watched.own_calls, watched.ranks[0].calls, watched.ranks[1].calls = 10, 9, 10
    said = "rank 1 hangs in step 3, for 60 s (collective calls: rank 0: 10, rank 1: 9, rank 2: 10)"
    assert watched.pass_time(100) == said
    assert 60 < watched.passed < 62


def test_when_all_ranks_are_in_the_same_call_none_is_blamed_alone() -> None:
    verdict = Watched().pass_time(100)
    assert verdict is not None
    assert verdict.startswith("every rank hangs in step 3, for 60 s")


def test_any_call_that_begins_is_progress_and_idling_is_not_a_hang() -> None:
    watched = Watched()
    for call in range(1, 4):
        assert watched.pass_time(50) is None
        watched.ranks[call % 2].calls = call
    watched.own.is_busy = False
    assert watched.pass_time(200) is None
    watched.own.is_busy = True
    assert watched.pass_time(59) is None
    assert watched.pass_time(2) is not None


def test_loading_may_take_long_while_any_rank_makes_progress() -> None:
    watched = Watched(loaded=False)
    for done in range(3):
        assert watched.pass_time(800) is None
        watched.ranks[1].loading = RankProgress("weights", done, 10)
    verdict = watched.pass_time(1000)
    assert verdict is not None
    assert verdict.startswith("every rank hangs while loading, for 900 s")


def test_a_failure_in_a_step_counts_once_rank_0_cannot_fail_at_the_same_place_any_more() -> None:
    watched = Watched()
    watched.own_calls = 7
    watched.fail(1, step=3, calls=7)
    assert watched.pass_time(30) is None
    watched.own_calls = 8  # it came past the place
    assert watched.pass_time(1) == "rank 1 failed: ValueError: no"


@pytest.mark.parametrize("change", [{"step": 4}, {"is_busy": False}])
def test_a_failure_in_a_step_that_rank_0_has_done_counts_at_once(change: dict[str, Any]) -> None:
    watched = Watched()
    watched.fail(2, step=3)
    assert watched.pass_time(5) is None
    for name, value in change.items():
        setattr(watched.own, name, value)
    assert watched.pass_time(1) == "rank 2 failed: ValueError: no"


def test_no_failure_counts_while_all_ranks_report_their_position() -> None:
    watched = Watched()
    watched.fail(1, step=3)
    watched.own.is_settling, watched.own.step = True, 4
    assert watched.pass_time(30) is None


def test_a_rank_that_fails_while_loading_is_given_time_for_others_to_say_the_same() -> None:
    watched = Watched(loaded=False)
    watched.fail(1, step=0)
    assert watched.pass_time(30) == "rank 1 failed while loading: ValueError: no"
    assert 5 < watched.passed < 6


def test_the_rank_that_failed_first_hand_is_named_before_those_it_took_along() -> None:
    watched = Watched()
    watched.fail(1, step=3, by_others=True)
    assert watched.pass_time(4) is None
    watched.fail(2, step=3)
    watched.own.is_busy = False
    assert watched.pass_time(5) == "rank 2 failed: ValueError: no"
    assert [rank.failure for rank in watched.ranks] == [None, "rank 2 failed: ValueError: no"]
