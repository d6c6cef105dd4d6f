"""Sequences are sent to the next engine in order, and none is forgotten."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from engine.messages import FRAME_HEADER, Submit, decode_to_engine
from service.engine.handing_over import HandingOver, write
from service.engine.handover import Handover
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.errors import EngineFailedError, EngineUnavailableError
from tests.service.engine.test_link import submission


class Writer:
    """What an engine is sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, frame: bytes) -> None:
        message = decode_to_engine(frame[FRAME_HEADER.size :])
        assert isinstance(message, Submit)
        self.sent.append(message.handle)

    async def drain(self) -> None:
        await asyncio.sleep(0)


class Parts:
    def __init__(self, restart_timeout: float = 30.0) -> None:
        self.sequences = OpenSequences()
        self.handover = Handover(self.sequences, restart_timeout)
        self.done = 0
        self.handing_over = HandingOver(self.sequences, self.handover, self._on_done)
        self.writer = Writer()
        self.next: list[EngineSequence] = []
        self._handles = itertools.count(1)

    def _on_done(self) -> None:
        self.done += 1
        if self.next:
            self.sequences.add(self.next.pop())
            self.begin()

    def begin(self) -> None:
        self.handing_over.begin(cast("Any", self.writer))

    def new(self) -> EngineSequence:
        [message] = submission([1, 2]).messages(self._handles)
        return EngineSequence(message.handle, 2, 0.0, Waker(), message)

    def add(self, **fields: Any) -> EngineSequence:
        one = self.new()
        for name, value in fields.items():
            setattr(one, name, value)
        self.sequences.add(one)
        return one

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0)


async def test_an_engine_that_nothing_waits_for_is_free_at_once() -> None:
    parts = Parts()
    parts.begin()
    assert parts.done == 1


async def test_sequences_are_sent_in_order_of_arrival_and_then_it_is_free() -> None:
    parts = Parts()
    for _ in range(3):
        parts.add()
    parts.begin()
    parts.begin()  # which is under way
    await parts.until(lambda: parts.done == 1)
    assert parts.writer.sent == [1, 2, 3]
    assert parts.sequences.in_state(SequenceState.UNSENT) == []
    await asyncio.sleep(0.01)
    assert parts.done == 1


async def test_those_that_come_when_it_has_just_ended_are_sent_too() -> None:
    parts = Parts()
    parts.add()
    parts.next = [parts.new()]
    parts.begin()
    await parts.until(lambda: parts.done == 2)
    assert parts.writer.sent == [1, 2]


async def test_a_trial_waits_for_what_happens_and_ends_with_the_engine() -> None:
    parts = Parts()
    suspect, other = parts.add(trial_tokens=1), parts.add()
    parts.begin()
    assert parts.handover.on_trial  # even before the task runs
    await parts.until(lambda: parts.writer.sent == [1])
    parts.handing_over.happened()
    await asyncio.sleep(0.01)
    assert parts.writer.sent == [1]
    suspect.generated.append(5)
    parts.handing_over.happened()
    await parts.until(lambda: parts.done == 1)
    assert parts.writer.sent == [1, other.handle]
    assert not parts.handover.on_trial
    suspect.state = SequenceState.RUNNING
    suspect.resumed_at = 1
    parts.handing_over.engine_lost("it died", has_other=False)
    assert parts.handing_over.is_waiting
    parts.begin()
    assert not parts.handing_over.is_waiting
    parts.handing_over.stop()
    await asyncio.sleep(0.01)
    assert parts.writer.sent == [1, other.handle]


async def test_a_fault_in_the_order_fails_those_that_wait_and_new_ones_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    suspect, other = parts.add(trial_tokens=1), parts.add()

    def fail(sequence: EngineSequence) -> bool:
        raise TypeError("a fault of the rules")

    monkeypatch.setattr(parts.handover.suspects, "is_accused", fail)
    parts.begin()
    await parts.until(lambda: parts.done == 1)
    assert isinstance(suspect.failure, EngineFailedError)
    assert isinstance(other.failure, EngineFailedError)
    assert not parts.handover.on_trial
    new = parts.add()
    parts.begin()
    await parts.until(lambda: parts.writer.sent == [new.handle])


async def test_an_engine_that_is_gone_gets_nothing_more() -> None:
    parts = Parts()
    one = parts.add()
    parts.writer.is_closed = True
    assert not write(cast("Any", parts.writer), b"")
    parts.begin()
    await asyncio.sleep(0.01)
    assert (parts.done, parts.writer.sent) == (0, [])
    assert one.state is SequenceState.UNSENT


async def test_the_wait_for_an_engine_ends() -> None:
    parts = Parts(restart_timeout=0.05)
    one = parts.add()
    parts.handing_over.engine_lost("it died", has_other=False)
    assert parts.handing_over.is_waiting
    one.deaths = 0
    await parts.until(lambda: one.failure is not None)
    assert isinstance(one.failure, EngineUnavailableError)
    assert not parts.handing_over.is_waiting


async def test_an_engine_that_came_in_time_keeps_its_sequences() -> None:
    parts = Parts(restart_timeout=0.05)
    one = parts.add()
    parts.handing_over.engine_lost("it died", has_other=False)
    parts.handing_over.engine_lost("it died again", has_other=False)
    parts.begin()
    await parts.until(lambda: parts.done == 1)
    await asyncio.sleep(0.1)  # longer than the wait
    assert one.failure is None
    assert parts.writer.sent == [one.handle]


@pytest.mark.parametrize("has_other", [False, True])
async def test_only_suspects_fail_without_a_wait_if_another_engine_is_there(
    has_other: bool,
) -> None:
    parts = Parts(restart_timeout=0.0)
    stream, suspect = parts.add(), parts.add()
    for one in (stream, suspect):
        one.state = SequenceState.RUNNING
        parts.sequences.num_waiting -= 1
    stream.generated.append(4)
    parts.handing_over.engine_lost("it died", has_other=has_other)
    assert suspect.failure is not None
    assert (stream.failure is None) == has_other
    assert parts.handover.release() == ([stream] if has_other else [])
    assert not parts.handing_over.is_waiting
