"""Which requests are admitted, which must wait, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from service.admission.admission import Admission
from service.admission.drain import Drain
from service.engine.link import EngineState, LinkPhase
from service.errors import (
    EngineUnavailableError,
    LoadingError,
    OverloadedError,
    QuireError,
)
from service.settings import ServiceSettings
from service.supervision.page import Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS
from service.tenants.caller import ANYBODY, Caller


@dataclass
class Queue:
    """What admission asks of a link."""

    phase: LinkPhase = LinkPhase.READY
    expects_engine: bool = False
    waiting_sequences: int = 0
    pace: float | None = None
    silence: float = 0.0
    load_seconds: float | None = None
    own: dict[str, int] = field(default_factory=dict)

    def waiting_of(self, owner: str) -> int:
        return self.own.get(owner, 0)

    def waiting_owners(self, *, beside: str) -> int:
        return len(self.own.keys() - {beside})

    @property
    def state(self) -> EngineState:
        return EngineState(self.phase)

    def predicted_wait(self, waiting: int) -> float | None:
        return None if self.pace is None else waiting / self.pace


def admission(
    queue: Queue, drain: Drain | None = None, supervision: Supervision | None = None
) -> Admission:
    settings = ServiceSettings(max_waiting_requests=10)
    return Admission(settings, queue, drain or Drain(30), supervision)  # type: ignore[arg-type]  # all it uses


def test_a_free_server_lets_everybody_in() -> None:
    admission(Queue(waiting_sequences=9)).check(ANYBODY)


@pytest.mark.parametrize(
    ("phase", "error"),
    [
        (LinkPhase.CONNECTING, LoadingError),
        (LinkPhase.LOADING, LoadingError),
        (LinkPhase.LOST, EngineUnavailableError),
    ],
)
def test_without_an_engine_nobody_is_let_in(phase: LinkPhase, error: type[Exception]) -> None:
    with pytest.raises(error):
        admission(Queue(phase=phase)).check(ANYBODY)


@pytest.mark.parametrize(
    ("phase", "error"),
    [(LinkPhase.LOST, EngineUnavailableError), (LinkPhase.LOADING, LoadingError)],
)
def test_a_lost_engine_is_expected_back_after_as_long_as_it_last_took_to_load(
    phase: LinkPhase, error: type[QuireError]
) -> None:
    with pytest.raises(error) as caught:
        admission(Queue(phase=phase, load_seconds=2.2)).check(ANYBODY)
    assert caught.value.status == 503
    assert caught.value.retry_after == 4


AWAY = (LinkPhase.LOST, LinkPhase.LOADING, LinkPhase.CONNECTING)


@pytest.mark.parametrize("phase", AWAY)
def test_requests_wait_for_an_expected_engine_as_the_queue_allows(
    phase: LinkPhase,
) -> None:
    silence = ServiceSettings().engine_silence_timeout + 1  # of course it says nothing
    admission(Queue(phase, waiting_sequences=9, silence=silence, expects_engine=True)).check(
        ANYBODY
    )
    with pytest.raises(OverloadedError):
        admission(Queue(phase, waiting_sequences=10, expects_engine=True)).check(ANYBODY)


@pytest.mark.parametrize("phase", AWAY)
def test_nobody_waits_for_an_engine_that_dies_again_and_again(phase: LinkPhase) -> None:
    page = SupervisorPage()
    page.set_engine(0, deaths=FAILING_DEATHS)
    gate = admission(Queue(phase, expects_engine=True), supervision=Supervision(page))
    with pytest.raises(EngineUnavailableError, match="5 times in a row"):
        gate.check(ANYBODY)
    page.set_engine(0, deaths=FAILING_DEATHS - 1)
    gate.check(ANYBODY)


def test_an_engine_that_says_nothing_gets_no_new_work() -> None:
    settings = ServiceSettings()
    admission(Queue(silence=settings.engine_silence_timeout - 1)).check(ANYBODY)
    with pytest.raises(EngineUnavailableError, match="No message from the engine"):
        admission(Queue(silence=settings.engine_silence_timeout + 1)).check(ANYBODY)


@pytest.mark.parametrize(("pace", "wait"), [(None, None), (4.0, 3), (1000.0, 1), (0.001, 120)])
def test_a_full_queue_tells_how_long_it_takes_at_its_pace(
    pace: float | None, wait: int | None
) -> None:
    with pytest.raises(OverloadedError) as caught:
        admission(Queue(waiting_sequences=10, pace=pace)).check(ANYBODY)
    assert caught.value.retry_after == wait


@pytest.mark.parametrize(
    ("own", "may_enter"),
    [
        ({}, True),
        ({"a": 4}, True),
        ({"a": 5}, False),  # alone: half of the ten places
        ({"a": 2, "b": 5}, True),
        ({"a": 3, "b": 5}, False),  # along with one other: a third
        ({"a": 1, "b": 5, "c": 4}, False),  # all ten are taken, and it has one
        ({"b": 5, "c": 5}, True),  # and it has none
    ],
)
def test_no_key_takes_all_places_of_a_shared_server(own: dict[str, int], may_enter: bool) -> None:
    gate = admission(Queue(waiting_sequences=sum(own.values()), own=own))
    caller = Caller("a", shares=True)
    if may_enter:
        gate.check(caller)
        return
    with pytest.raises(OverloadedError):
        gate.check(caller)


def test_a_key_that_is_the_only_one_may_take_all_places() -> None:
    alone = Caller("a", shares=False)
    admission(Queue(waiting_sequences=9, own={"a": 9})).check(alone)
    with pytest.raises(OverloadedError):
        admission(Queue(waiting_sequences=10, own={"a": 10})).check(alone)
