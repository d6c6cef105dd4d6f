"""What a worker reports about its supervisor, in health and liveness."""

from __future__ import annotations

import time

import pytest

from engine.beats import Page, Sign
from service.supervision.page import SUPERVISOR_TIMEOUT_SECONDS, Supervision
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS


def supervised(deaths: int, *, silent: float = 0.0) -> Supervision:
    page = Page()
    page[Sign.BEATS] = time.monotonic() - silent
    page[Sign.FRUITLESS_DEATHS] = deaths
    page[Sign.NEXT_START_AT] = time.monotonic() + 12
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
