"""Whether the engine is well is decided once, and its silence is logged from beginning to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.engine.link import EngineLink, EngineState, LinkPhase
from service.engine.pool import EnginePool
from service.engine.sequence import EngineSequence, Waker
from service.engine.silence import (
    EngineStatus,
    SilenceLog,
    engine_figures,
    engine_status,
    engine_statuses,
)
from service.supervision.page import Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS

TIMEOUT = 5.0
NOBODY = Supervision(None)


def linked(phase: LinkPhase = LinkPhase.READY, silent: float | None = 0.0) -> EngineLink:
    link = EngineLink(Path("unused"), on_step=lambda _: None, on_state=lambda _: None)
    link.state = EngineState(phase)
    link.last_message_time = None if silent is None else time.monotonic() - silent
    return link


@pytest.mark.parametrize(
    ("phase", "silent", "deaths", "status"),
    [
        (LinkPhase.CONNECTING, None, 0, EngineStatus.LOADING),
        (LinkPhase.LOADING, TIMEOUT + 1, 0, EngineStatus.LOADING),
        (LinkPhase.LOST, TIMEOUT + 1, 0, EngineStatus.LOST),
        (LinkPhase.LOST, TIMEOUT + 1, FAILING_DEATHS, EngineStatus.FAILING),
        (LinkPhase.READY, 0.0, FAILING_DEATHS, EngineStatus.OK),
        (LinkPhase.READY, TIMEOUT - 1, 0, EngineStatus.OK),
        (LinkPhase.READY, TIMEOUT + 1, 0, EngineStatus.SILENT),
    ],
)
def test_the_status_follows_the_link_the_deaths_and_the_silence(
    phase: LinkPhase, silent: float | None, deaths: int, status: EngineStatus
) -> None:
    page = SupervisorPage()
    page.set_engine(0, deaths=deaths)
    assert engine_status(linked(phase, silent), Supervision(page), TIMEOUT) is status


def test_figures_are_those_of_this_moment() -> None:
    link = linked(silent=7.0)
    figures = engine_figures(link, [EngineStatus.SILENT])
    assert figures.silence == pytest.approx(7.0, abs=1.0)
    assert (figures.oldest_wait, figures.longest_gap, figures.predicted_wait) == (0.0, 0.0, 0.0)
    link.open_sequences.add(EngineSequence(1, 3, 0.0, Waker()))
    running = EngineSequence(2, 3, 0.0, Waker(), last_token_time=time.monotonic() - 3.0)
    link.open_sequences.add(running)
    figures = engine_figures(link, [EngineStatus.SILENT])
    assert 0 < figures.oldest_wait < 1
    assert figures.longest_gap == pytest.approx(3.0, abs=1.0)
    assert figures.predicted_wait is None
    assert (
        engine_figures(linked(LinkPhase.CONNECTING, None), [EngineStatus.LOADING]).silence is None
    )


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def test_a_silence_is_two_lines_however_long_it_is(logged: list[Any]) -> None:
    link = linked()
    log = SilenceLog(link, NOBODY, TIMEOUT)
    log.look()
    assert logged == []
    link.last_message_time = time.monotonic() - TIMEOUT - 1
    for handle in range(3):
        link.open_sequences.add(EngineSequence(handle, 3, 0.0, Waker()))
    for _ in range(4):
        log.look()
    assert [line["event"] for line in logged] == ["the engine is silent"]
    assert logged[0]["silent_seconds"] == pytest.approx(6.0, abs=0.5)
    assert logged[0]["sequences"] == 3
    link.last_message_time = time.monotonic() + 14.0  # twenty seconds after the one before
    for _ in range(4):
        log.look()
    assert [line["event"] for line in logged[1:]] == ["the engine's silence is over"]
    assert logged[1]["silent_seconds"] == pytest.approx(20.0, abs=0.5)
    assert (logged[1]["sequences"], logged[1]["status"]) == (3, "ok")


def test_a_silence_that_ends_with_the_engine_is_over_too(logged: list[Any]) -> None:
    link = linked(silent=TIMEOUT + 1)
    log = SilenceLog(link, NOBODY, TIMEOUT)
    log.look()
    link.state = EngineState(LinkPhase.LOST)
    log.look()
    assert [line["event"] for line in logged][1:] == ["the engine's silence is over"]
    assert logged[1]["status"] == "lost"
    assert logged[1]["silent_seconds"] == pytest.approx(TIMEOUT + 1, abs=0.5)


async def test_it_is_looked_at_until_cancelled(logged: list[Any]) -> None:
    link = linked(silent=TIMEOUT + 1)
    watching = asyncio.create_task(SilenceLog(link, NOBODY, TIMEOUT).run())
    async with asyncio.timeout(20):
        while not logged:
            await asyncio.sleep(0.01)
    watching.cancel()
    assert [line["event"] for line in logged] == ["the engine is silent"]


def test_of_several_engines_the_best_one_decides_and_each_has_its_lines(
    logged: list[Any], tmp_path: Path
) -> None:
    pool = EnginePool(lambda state, engine=0: None, TIMEOUT, tmp_path)
    for number in range(2):
        one = linked()
        one.number = number
        pool.add(one)
    pool.links[1].last_message_time = time.monotonic() - TIMEOUT - 1
    assert engine_status(pool, NOBODY, TIMEOUT) is EngineStatus.OK
    assert engine_statuses(pool, NOBODY, TIMEOUT) == ["ok", "silent"]
    SilenceLog(pool, NOBODY, TIMEOUT).look()
    assert [(line["event"], line["engine"]) for line in logged] == [("the engine is silent", 1)]
    pool.links[0].state = EngineState(LinkPhase.LOST)
    assert engine_status(pool, NOBODY, TIMEOUT) is EngineStatus.SILENT
    pool.links[1].state = EngineState(LinkPhase.LOADING)
    assert engine_status(pool, NOBODY, TIMEOUT) is EngineStatus.LOADING
