"""Follows a generation to its end: as a stream of any API, or until its answer is complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from observability.logging import get_logger
from service.errors import InternalError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.serving.exchange import Exchange

_log = get_logger()

Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)
Piece_contra = TypeVar("Piece_contra", contravariant=True)


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


class Sender(Protocol[Piece_contra]):
    """``write`` sends a piece; False: await ``drained`` before the next one."""

    def write(self, piece: Piece_contra, /) -> bool: ...

    async def drained(self) -> None: ...


class Outlet(Generic[Piece]):
    """Where a stream's pieces may be sent in the call that takes the tokens, without waking its
    task. The task's reader sets ``sender`` before it reads, if it takes pieces so."""

    def __init__(self) -> None:
        self.sender: Sender[Piece] | None = None


class _Push(Generic[Piece]):
    """Sends what the engine's messages bring, one piece for each, while the sender keeps up."""

    def __init__(
        self, generation: Generation, stream: AnswerStream[Piece], sender: Sender[Piece]
    ) -> None:
        self._generation = generation
        self._choices = generation.choices
        self._only = self._choices[0] if len(self._choices) == 1 else None
        self._clear = generation.waker.clear
        self._advance = stream.advance
        self._sender = sender
        self._write = sender.write
        # Done when the task has to continue: one of the following says why.
        self._over: asyncio.Future[None] | None = None
        self._full = False
        self._rest: Iterable[Piece] = ()
        self._error: Exception | None = None

    async def run(self) -> Iterable[Piece]:
        """Return when the generation is done, or what comes next needs the task: the pieces that
        were not sent. Raises what taking or encoding tokens raised."""
        self._full, self._rest, self._error = False, (), None
        waker = self._generation.waker
        over = self._over = asyncio.get_running_loop().create_future()
        waker.follow(self._take)
        try:
            await over
        finally:
            self._over = None
            waker.unfollow()
        if self._error is not None:
            raise self._error
        if self._full:
            await self._sender.drained()
        return self._rest

    def _take(self) -> None:
        """Send what has arrived, or let the task continue."""
        over, generation, only = self._over, self._generation, self._only
        if over is None or over.done():
            return
        try:
            if only is not None and only.advance_by_one():
                self._clear()
                pieces = self._advance(self._choices)
            else:
                pieces = self._advance(generation.collect())
            if type(pieces) is not tuple or len(pieces) > 1:
                self._rest = pieces
            else:
                self._full = any(pieces) and not self._write(pieces[0])
                if not (self._full or generation.done or generation.behind):
                    return
        except Exception as error:
            self._error = error
        over.set_result(None)


async def stream_events(
    exchange: Exchange,
    generation: Generation,
    stream: AnswerStream[Piece],
    commit: Commit | None = None,
    outlet: Outlet[Piece] | None = None,
) -> AsyncGenerator[Piece, None]:
    """Yield the stream's pieces, up to its own last event, for success or failure; but not those
    that could be sent to the ``outlet``."""
    try:
        opening = stream.begin()
        if opening:
            yield opening
        first = True
        push: _Push[Piece] | None = None
        while not generation.done:
            if push is None or generation.behind:
                pieces = stream.advance(await generation.advance())
            else:
                pieces = await push.run()
            if first and generation.first_token_time is not None:
                exchange.note_first_token(generation.first_token_time)
                first = False
                if outlet is not None and outlet.sender is not None:
                    push = _Push(generation, stream, outlet.sender)
            further = False
            for piece in pieces:
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
