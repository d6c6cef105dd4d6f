"""Follows a generation to its end: as a stream of any API, or until its answer is complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from observability.logging import get_logger
from service.errors import InternalError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.serving.exchange import Exchange

_log = get_logger()

Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)


class AnswerStream(Protocol[Piece_co]):
    """Encodes a stream (as SSE bytes, for example). Call ``begin``, ``advance`` as often as needed,
    then ``end``, or at any point ``fail``, which returns the API's event for a failed stream. The
    pieces of an ``advance`` are encoded lazily, each with bounded work; an event may be split among
    several."""

    def begin(self) -> Piece_co: ...

    def advance(self, choices: list[Choice]) -> Iterable[Piece_co]: ...

    def end(self) -> Piece_co: ...

    def fail(self, error: QuireError) -> Piece_co: ...


class Answer(Protocol):
    """Encodes a complete answer. Call ``follow`` as tokens arrive and ``whole`` (possibly twice) at
    the end; it returns the answer's JSON in pieces that are encoded lazily, each with bounded work.
    """

    def follow(self, choices: list[Choice]) -> None: ...

    def whole(self) -> Iterable[bytes]: ...

    def stream(self) -> AnswerStream[bytes]: ...


# Awaited when an answer is ready, before its end is sent. False: what the end says is no longer
# true, so it must be encoded again. Raises QuireError if the end must not be sent as a success.
Commit = Callable[[], Awaitable[bool]]


async def complete(exchange: Exchange, generation: Generation, answer: Answer) -> None:
    """Return once the whole answer is generated. Raises QuireError when the engine fails."""
    while not generation.done:
        answer.follow(await generation.advance())
        if generation.first_token_time is not None:
            exchange.note_first_token(generation.first_token_time)


async def stream_events(
    exchange: Exchange,
    generation: Generation,
    stream: AnswerStream[Piece],
    commit: Commit | None = None,
) -> AsyncGenerator[Piece, None]:
    """Yield the stream's pieces, up to its own last event, for success or failure."""
    try:
        opening = stream.begin()
        if opening:
            yield opening
        first, arm = True, generation.waker.arm
        while not generation.done:
            waking = arm()
            if waking is not None:
                await waking
            elif generation.behind:
                await asyncio.sleep(0)
            changed = generation.collect()
            if first and generation.first_token_time is not None:
                exchange.note_first_token(generation.first_token_time)
                first = False
            further = False
            for piece in stream.advance(changed):
                if further:
                    await asyncio.sleep(0)
                if piece:
                    yield piece
                further = True
        ending = stream.end()
        if commit is not None and not await commit():
            ending = stream.end()
        exchange.succeed(outcome_of(generation))
        yield ending
    except QuireError as error:
        exchange.fail(error)
        yield stream.fail(error)
    except Exception:
        _log.exception("a stream failed", request_id=exchange.record.request_id)
        fault = InternalError("The server had an error while processing the request.")
        exchange.fail(fault)
        yield stream.fail(fault)


def outcome_of(generation: Generation) -> str:
    """Return the request's outcome, which is its first choice's finish reason."""
    finished = generation.choices[0].finished
    assert finished is not None
    return finished.reason
