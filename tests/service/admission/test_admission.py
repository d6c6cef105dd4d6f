"""Which requests are admitted, which must wait, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.messages import Embed, Submit
from engine.queueing import QueueBounds
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.engine.link import EngineState, LinkPhase
from service.engine.sequence import EngineSequence, Waker
from service.errors import (
    EngineUnavailableError,
    LoadingError,
    OverloadedError,
    QuireError,
)
from service.settings import ServiceSettings
from service.supervision.page import Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS
from service.tenants.caller import Caller


@dataclass
class Queue:
    """What admission asks of a link."""

    phase: LinkPhase = LinkPhase.READY
    expects_engine: bool = False
    waiting_sequences: int = 0
    silence: float = 0.0
    load_seconds: float | None = None
    bounds: QueueBounds | None = None
    open_sequences: list[EngineSequence] = field(default_factory=list)

    def hold(self, sequence: EngineSequence) -> None:
        self.open_sequences.append(sequence)
        self.waiting_sequences += 1

    @property
    def links(self) -> list[Queue]:
        return [self]

    @property
    def state(self) -> EngineState:
        return EngineState(self.phase)


def admission(
    queue: Queue, drain: Drain | None = None, supervision: Supervision | None = None
) -> Admission:
    settings = ServiceSettings(max_waiting_requests=10)
    return Admission(settings, queue, drain or Drain(30), supervision)  # type: ignore[arg-type]  # all it uses


def test_a_free_server_lets_everybody_in() -> None:
    admission(Queue(waiting_sequences=9)).check()


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
        admission(Queue(phase=phase)).check()


@pytest.mark.parametrize(
    ("phase", "error"),
    [(LinkPhase.LOST, EngineUnavailableError), (LinkPhase.LOADING, LoadingError)],
)
def test_a_lost_engine_is_expected_back_after_as_long_as_it_last_took_to_load(
    phase: LinkPhase, error: type[QuireError]
) -> None:
    with pytest.raises(error) as caught:
        admission(Queue(phase=phase, load_seconds=2.2)).check()
    assert caught.value.status == 503
    assert caught.value.retry_after == 4


@pytest.mark.parametrize("phase", [LinkPhase.CONNECTING, LinkPhase.LOADING])
def test_while_the_first_engine_loads_clients_may_look_again_soon(phase: LinkPhase) -> None:
    with pytest.raises(LoadingError) as caught:
        admission(Queue(phase=phase)).check()
    assert caught.value.headers()["retry-after"] == "5"


def held(tenant: str, weight: float = 1.0) -> EngineSequence:
    message = Submit(
        handle=1,
        request_id="r",
        prompt_token_ids=[1],
        task=Embed(),
        arrival_time=0.0,
        tenant=tenant,
        weight=weight,
    )
    return EngineSequence(1, 1, 0.0, Waker(), message)


def test_while_the_engine_restarts_no_tenant_takes_all_places() -> None:
    one = Caller(owner="a" * 64, shares=True)
    other = Caller(owner="b" * 64, shares=True, weight=2.0)
    queue = Queue(LinkPhase.LOST, expects_engine=True)
    gate = admission(queue)  # of ten places
    while queue.waiting_sequences < 5:
        gate.check(one)
        queue.hold(held(one.tenant))
    with pytest.raises(OverloadedError, match="5 sequences of this key"):
        gate.check(one)
    while queue.waiting_sequences < 10:  # two parts of four, and its first in any case
        gate.check(other)
        queue.hold(held(other.tenant, 2.0))
    with pytest.raises(OverloadedError, match="5 sequences of this key"):
        gate.check(other)
    gate.check(Caller(owner="c" * 64, shares=True))  # one always has a place
    queue.hold(held("c" * 16))
    with pytest.raises(OverloadedError, match="11 sequences are already waiting"):
        gate.check(Caller(owner="c" * 64, shares=True))


def test_while_the_engine_restarts_all_choices_of_a_request_need_places() -> None:
    one = Caller(owner="a" * 64, shares=True)
    queue = Queue(LinkPhase.LOST, expects_engine=True)
    gate = admission(queue)  # of ten places
    gate.check_choices(one, 30)  # nothing waits: nothing else could use them
    queue.hold(held(one.tenant))
    gate.check_choices(one, 4)
    with pytest.raises(OverloadedError, match="1 sequence of this key"):
        gate.check_choices(one, 5)
    queue.waiting_sequences = 7
    gate.check_choices(Caller(), 3)
    with pytest.raises(OverloadedError, match="7 sequences are already waiting"):
        gate.check_choices(Caller(), 4)
    queue.phase = LinkPhase.READY  # the engine judges them
    gate.check_choices(Caller(), 4)


AWAY = (LinkPhase.LOST, LinkPhase.LOADING, LinkPhase.CONNECTING)


@pytest.mark.parametrize("phase", AWAY)
def test_requests_wait_for_an_expected_engine_as_the_queue_allows(
    phase: LinkPhase,
) -> None:
    silence = ServiceSettings().engine_silence_timeout + 1  # of course it says nothing
    admission(Queue(phase, waiting_sequences=9, silence=silence, expects_engine=True)).check()
    with pytest.raises(OverloadedError):
        admission(Queue(phase, waiting_sequences=10, expects_engine=True)).check()


@pytest.mark.parametrize("phase", AWAY)
def test_nobody_waits_for_an_engine_that_dies_again_and_again(phase: LinkPhase) -> None:
    page = SupervisorPage()
    page.set_engine(0, deaths=FAILING_DEATHS)
    gate = admission(Queue(phase, expects_engine=True), supervision=Supervision(page))
    with pytest.raises(EngineUnavailableError, match="5 times in a row"):
        gate.check()
    page.set_engine(0, deaths=FAILING_DEATHS - 1)
    gate.check()


def test_an_engine_that_says_nothing_gets_no_new_work() -> None:
    settings = ServiceSettings()
    admission(Queue(silence=settings.engine_silence_timeout - 1)).check()
    with pytest.raises(EngineUnavailableError, match="No message from the engine"):
        admission(Queue(silence=settings.engine_silence_timeout + 1)).check()


def test_the_engine_is_told_the_bounds_of_its_queue_and_the_worker_does_not_judge() -> None:
    queue = Queue(waiting_sequences=10)
    gate = admission(queue)
    gate.check()
    assert queue.bounds == QueueBounds(10, ServiceSettings().max_waiting_tokens)
    gate.most_waiting = 3
    assert queue.bounds == QueueBounds(3, ServiceSettings().max_waiting_tokens)
    assert gate.most_waiting == 3
