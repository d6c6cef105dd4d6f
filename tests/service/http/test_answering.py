"""How an exchange ends when its answer cannot be written."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NoReturn

import pytest

from service.checkpoint.checkpoint import load_checkpoint
from service.errors import OverloadedError, QuireError
from service.generation.request import Generation
from service.http.answering import answer_stream, answer_whole
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from service.wire.sse import error_event
from tests.service.wire.chat.test_answer import Played, one_each


class Unwritable:
    """An answer that something unforeseen keeps from being encoded."""

    def follow(self, choices: object) -> None:
        pass

    def whole(self) -> NoReturn:
        raise TypeError("no bytes for this")

    def stream(self) -> Unwritable:
        return self

    def begin(self) -> bytes:
        return b""

    def advance(self, choices: object) -> bytes:
        return b""

    def end(self) -> NoReturn:
        raise TypeError("no bytes for this")

    def fail(self, error: QuireError) -> bytes:
        return error_event(error)


@pytest.fixture
def generation(tiny_model: Path) -> Generation:
    """A generation whose engine has said all there is, for one more ``advance`` to see."""
    generation = Played(load_checkpoint(tiny_model), "Hello", one_each()).generation
    generation.choices[0].sequence.waker.wake()
    return generation


@pytest.fixture
def exchange() -> Exchange:
    record = RequestRecord("req_1", "chat_completions", "POST", "/", time.monotonic(), 0)
    return Exchange(record, NoTelemetry())


async def never() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def test_an_answer_that_cannot_be_encoded_is_not_a_success(
    generation: Generation, exchange: Exchange
) -> None:
    with pytest.raises(TypeError):
        await answer_whole(exchange, generation, Unwritable(), never)
    assert exchange.record.outcome == ""  # for the exception handler to say


async def test_a_stream_whose_end_cannot_be_encoded_ends_in_an_error_and_counts_as_one(
    generation: Generation, exchange: Exchange
) -> None:
    response = answer_stream(exchange, generation, Unwritable())
    events = b"".join([chunk async for chunk in response._events])
    assert events.startswith(b'data: {"error":')
    assert b"[DONE]" not in events
    assert exchange.record.outcome == "error:internal"


def test_memory_held_by_an_answer_counts_until_its_work_has_ended() -> None:
    room = UploadRoom(1000)
    record = RequestRecord("req_1", "responses", "POST", "/", time.monotonic(), 0)
    exchange = Exchange(record, NoTelemetry(), answer_room=room)
    exchange.hold(FREE_BYTES + 900)
    assert (room.held, exchange.held) == (900, 900)
    other = Exchange(record, NoTelemetry(), answer_room=room)
    with pytest.raises(OverloadedError):
        other.hold(FREE_BYTES + 900)
    end = exchange.detach()
    exchange.close()  # the response has been sent, the run continues
    assert room.held == 900
    end()
    assert room.held == 0
