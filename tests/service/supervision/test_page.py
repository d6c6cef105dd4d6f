"""What a worker reports about its supervisor, in health and liveness."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from service.supervision.page import SUPERVISOR_TIMEOUT_SECONDS, Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS


def supervised(deaths: int, *, silent: float = 0.0) -> Supervision:
    page = SupervisorPage()
    page.beat(time.monotonic() - silent)
    page.set_engine(0, deaths=deaths, next_start_at=time.monotonic() + 12)
    return Supervision(page)


def test_few_deaths_are_tolerated_and_many_are_reported() -> None:
    assert supervised(FAILING_DEATHS - 1).problem is None
    problem = supervised(FAILING_DEATHS).problem
    assert problem is not None
    assert problem.startswith(f"the engine died {FAILING_DEATHS} times in a row")
    assert "next start in 1" in problem


@pytest.mark.parametrize(
    ("deaths", "silent", "lost", "hopeless"),
    [
        (0, 0, True, False),  # the supervisor will start another
        (HOPELESS_DEATHS - 1, 0, True, False),
        (HOPELESS_DEATHS, 0, True, True),
        (HOPELESS_DEATHS, 0, False, False),  # one is there after all
        (0, SUPERVISOR_TIMEOUT_SECONDS + 1, False, True),  # the supervisor hangs
    ],
)
def test_liveness_fails_only_where_a_restart_of_everything_is_what_is_left(
    deaths: int, silent: float, lost: bool, hopeless: bool
) -> None:
    assert supervised(deaths, silent=silent).is_hopeless(engine_is_lost=lost) is hopeless


def test_without_a_supervisor_a_lost_engine_stays_lost() -> None:
    assert Supervision(None).problem is None
    assert Supervision(None).is_hopeless(engine_is_lost=True)
    assert not Supervision(None).is_hopeless(engine_is_lost=False)


def test_one_engine_of_two_that_lives_is_enough() -> None:
    page = SupervisorPage(engines=2)
    page.beat(time.monotonic())
    page.set_engine(0, runs=False, deaths=HOPELESS_DEATHS)
    page.set_engine(1)
    assert Supervision(page).problem is None
    assert not Supervision(page).is_hopeless(engine_is_lost=True)
    page.set_engine(1, runs=False, deaths=HOPELESS_DEATHS)
    assert str(Supervision(page).problem).startswith(f"each engine died {HOPELESS_DEATHS} times")
    assert Supervision(page).is_hopeless(engine_is_lost=True)


def test_what_the_supervisor_writes_each_worker_reads(tmp_path: Path) -> None:
    written = SupervisorPage(tmp_path / "page", workers=3, engines=2, create=True)
    mine = Supervision(SupervisorPage(tmp_path / "page", workers=3, engines=2), index=1)
    assert not mine.leads
    written.lead = 1
    written.set_worker(2, 4711)
    written.set_engine(0)
    assert mine.leads
    assert mine.workers == 3
    assert mine.running_workers() == {1: os.getpid(), 2: 4711}
    assert [mine.engine_runs(0), mine.engine_runs(1)] == [True, False]


def test_a_worker_without_a_supervisor_leads() -> None:
    alone = Supervision(None)
    assert alone.leads
    assert (alone.workers, alone.running_workers()) == (1, {0: os.getpid()})
    assert alone.engine_runs(0)


def test_a_download_is_shown_from_its_first_moment_to_its_last(tmp_path: Path) -> None:
    page = SupervisorPage(tmp_path / "page", workers=2, engines=2, create=True)
    seen = Supervision(SupervisorPage(tmp_path / "page", workers=2, engines=2))
    assert seen.download is None
    assert seen.engine_detail("connecting") == "connecting"
    page.download = (0, 0)
    assert seen.download == (0, 0)
    assert seen.engine_detail("connecting") == "downloading the model"
    page.download = (1_500_000_000, 6_000_000_000)
    assert seen.download == (1_500_000_000, 6_000_000_000)
    detail = "downloading the model: 1.5 GB of 6.0 GB (25 %)"
    assert seen.engine_detail("connecting") == detail
    page.download = None
    assert seen.download is None
    assert Supervision(None).download is None
