"""Waits are counted by class, and only of sequences that no engine runs."""

from __future__ import annotations

from engine.messages import Embed
from engine.queueing import ServiceClass
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.submission import Submission
from service.engine.waits import ClassWait, waits
from service.tenants.caller import Caller


def _sequence(
    kind: ServiceClass, since: float, state: SequenceState = SequenceState.QUEUED
) -> EngineSequence:
    caller = Caller(service_class=kind)
    [message] = Submission(
        request_id="r", prompt_token_ids=[1], task=Embed(), caller=caller, arrival_time=since
    ).messages(iter([1]))
    return EngineSequence(1, 1, since, Waker(), message, waiting_since=since, state=state)


def test_each_class_has_its_number_and_its_oldest() -> None:
    found = waits(
        [
            _sequence(ServiceClass.BATCH, 2.0),
            _sequence(ServiceClass.BATCH, 9.0, SequenceState.UNSENT),
            _sequence(ServiceClass.INTERACTIVE, 8.0),
            _sequence(ServiceClass.INTERACTIVE, 1.0, SequenceState.RUNNING),
            _sequence(ServiceClass.STANDARD, 1.0, SequenceState.ENDED),
        ],
        10.0,
    )
    assert found == {
        ServiceClass.INTERACTIVE: ClassWait(1, 2.0),
        ServiceClass.STANDARD: ClassWait(0, 0.0),
        ServiceClass.BATCH: ClassWait(2, 8.0),
    }
