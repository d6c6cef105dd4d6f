"""Sending an answer, whole or as a stream, for any API whose answer can do both."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from litestar import Request, Response
from litestar.types import Receive

from observability.logging import get_logger
from service.errors import ClientGoneError, InternalError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.http.body import client_left
from service.http.event_stream import EventStream
from service.http.exchange import EXCHANGE, Exchange
from service.wire.pieces import gathered

HttpRequest = Request[Any, Any, Any]

T = TypeVar("T")

_log = get_logger()


Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)


class AnswerStream(Protocol[Piece_co]):
    """What is sent (SSE bytes, say), in the order ``begin``, ``advance`` as often as needed, then
    ``end``, or ``fail`` at any point: the API's own event that says the stream has not
    succeeded. The pieces of an ``advance`` are made when they are asked for, each with bounded
    work; an event may be in several."""

    def begin(self) -> Piece_co: ...

    def advance(self, choices: list[Choice]) -> Iterable[Piece_co]: ...

    def end(self) -> Piece_co: ...

    def fail(self, error: QuireError) -> Piece_co: ...


class Answer(Protocol):
    """``follow`` is called as tokens arrive, ``whole`` (perhaps twice) at the end: the answer's
    JSON in pieces that are made when they are asked for, each with bounded work."""

    def follow(self, choices: list[Choice]) -> None: ...

    def whole(self) -> Iterable[bytes]: ...

    def stream(self) -> AnswerStream[bytes]: ...


def exchange_of(request: HttpRequest) -> Exchange:
    exchange: Exchange = request.scope["state"][EXCHANGE]
    return exchange


def respond(exchange: Exchange, body: bytes) -> Response[bytes]:
    """A JSON answer with status 200."""
    exchange.record.status = 200
    return Response(
        content=body, status_code=200, media_type="application/json", headers=exchange.headers
    )


# Awaited when an answer is ready, before its end is told. False: what the end says has become
# untrue, it must be made anew. Raises QuireError where it must not be told as a success.
Settle = Callable[[], Awaitable[bool]]


async def answer_whole(
    exchange: Exchange,
    generation: Generation,
    answer: Answer,
    receive: Receive,
    settle: Settle | None = None,
) -> Response[bytes]:
    """A long answer is sent piece by piece as it is encoded: others' streams go on meanwhile, and
    no more of it than a piece is in memory.

    Raises ClientGoneError as soon as the client leaves, QuireError when the engine fails."""
    await finish_whole(exchange, generation, receive, answer)
    if settle is not None:  # what is stored is one piece
        body = b"".join(answer.whole())
        if not await settle():
            body = b"".join(answer.whole())
        exchange.succeed(_outcome(generation))
        return respond(exchange, body)
    return respond_in_pieces(exchange, answer.whole(), _outcome(generation))


def respond_in_pieces(exchange: Exchange, body: Iterable[bytes], outcome: str) -> Response[bytes]:
    """A JSON answer with status 200, of pieces that are made when they are sent: others' streams
    go on between them. It ends the exchange with this outcome."""
    pieces = gathered(body)
    begun, following = next(pieces), next(pieces, None)
    if following is None:
        exchange.succeed(outcome)
        return respond(exchange, begun)
    exchange.record.status = 200
    return EventStream(
        _sent(exchange, itertools.chain((begun, following), pieces), outcome),
        exchange.headers,
        media_type="application/json",
        patience=exchange.patience,
        keep_alive=0,
        cut=exchange.fail,
    )


async def _sent(
    exchange: Exchange, pieces: Iterable[bytes], outcome: str
) -> AsyncGenerator[bytes, None]:
    try:
        for piece in pieces:
            yield piece
            await asyncio.sleep(0)
    except Exception:  # the connection breaks off: a body that was begun cannot say so itself
        exchange.fail(InternalError("The server had an error while encoding the answer."))
        raise
    exchange.succeed(outcome)


async def finish_whole(
    exchange: Exchange, generation: Generation, receive: Receive, answer: Answer
) -> None:
    """Returns once all of it is generated. Raises ClientGoneError as soon as the client leaves,
    QuireError when the engine fails."""
    await unless_client_leaves(receive, _complete(exchange, generation, answer))


async def unless_client_leaves(receive: Receive, work: Awaitable[T]) -> T:
    """What ``work`` returns or raises; ClientGoneError as soon as the client leaves."""
    left = asyncio.ensure_future(client_left(receive))
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({left, working}, return_when=asyncio.FIRST_COMPLETED)
        # A server tells of it once: whoever asks again would wait for nothing.
        if not working.done() or (left.done() and working.exception() is None):
            raise ClientGoneError("The client left before the answer was complete.")
        return working.result()
    finally:
        left.cancel()
        working.cancel()


def answer_stream(
    exchange: Exchange, generation: Generation, answer: Answer, settle: Settle | None = None
) -> EventStream:
    """An SSE response that ends by the API's own last event, of success or of failure."""
    exchange.record.status = 200
    return EventStream(
        stream_events(exchange, generation, answer.stream(), settle),
        exchange.headers,
        patience=exchange.patience,
        keep_alive=exchange.keep_alive,
        cut=exchange.fail,
    )


async def _complete(exchange: Exchange, generation: Generation, answer: Answer) -> None:
    while not generation.done:
        answer.follow(await generation.advance())
        if generation.first_token_time is not None:
            exchange.note_first_token(generation.first_token_time)


async def stream_events(
    exchange: Exchange,
    generation: Generation,
    stream: AnswerStream[Piece],
    settle: Settle | None = None,
) -> AsyncGenerator[Piece, None]:
    """The stream's pieces, to its own last event, of success or of failure."""
    try:
        opening = stream.begin()
        if opening:
            yield opening
        first, arm = True, generation.waker.arm
        while not generation.done:
            if generation.behind:
                await asyncio.sleep(0)
            waking = arm()
            if waking is not None:
                await waking
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
        if settle is not None and not await settle():
            ending = stream.end()
        exchange.succeed(_outcome(generation))
        yield ending
    except QuireError as error:
        exchange.fail(error)
        yield stream.fail(error)
    except Exception:
        _log.exception("a stream failed", request_id=exchange.record.request_id)
        fault = InternalError("The server had an error while processing the request.")
        exchange.fail(fault)
        yield stream.fail(fault)


def _outcome(generation: Generation) -> str:
    """The request's outcome is its first choice's finish reason."""
    finished = generation.choices[0].finished
    assert finished is not None
    return finished.reason
