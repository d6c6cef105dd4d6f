"""Sends an answer, whole or as a stream, for any API that supports both."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable

from litestar import Response
from litestar.types import Receive

from service.errors import InternalError
from service.generation.request import Generation
from service.http.body import client_left
from service.http.call import respond
from service.http.event_stream import EventStream
from service.serving.client import unless_left
from service.serving.exchange import Exchange
from service.serving.stream import Answer, Commit, Outlet, complete, outcome_of, stream_events
from service.wire.pieces import gathered


async def answer_whole(
    exchange: Exchange,
    generation: Generation,
    answer: Answer,
    receive: Receive,
    commit: Commit | None = None,
) -> Response[bytes]:
    """Send a complete answer. A long one is encoded and sent piece by piece, so that other streams
    continue and only one piece at a time is in memory.

    Raises ClientGoneError as soon as the client leaves, QuireError when the engine fails.
    """
    await finish_whole(exchange, generation, receive, answer)
    if commit is not None:  # what is stored is one piece
        body = b"".join(answer.whole())
        if not await commit():
            body = b"".join(answer.whole())
        exchange.succeed(outcome_of(generation))
        return respond(exchange, body)
    return respond_in_pieces(exchange, answer.whole(), outcome_of(generation))


def respond_in_pieces(exchange: Exchange, body: Iterable[bytes], outcome: str) -> Response[bytes]:
    """Return a JSON answer with status 200 whose pieces are encoded as they are sent, so that other
    streams continue in between. It ends the exchange with this outcome."""
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
        flush=exchange.record.flush,
    )


async def _sent(
    exchange: Exchange, pieces: Iterable[bytes], outcome: str
) -> AsyncGenerator[bytes, None]:
    try:
        for piece in pieces:
            yield piece
            await asyncio.sleep(0)
    except Exception:  # the connection is dropped: a partly sent body cannot report an error
        exchange.fail(InternalError("The server had an error while encoding the answer."))
        raise
    exchange.succeed(outcome)


async def finish_whole(
    exchange: Exchange, generation: Generation, receive: Receive, answer: Answer
) -> None:
    """Return once everything is generated. Raises ClientGoneError as soon as the client leaves,
    QuireError when the engine fails."""
    await unless_left(client_left(receive), complete(exchange, generation, answer))


def answer_stream(
    exchange: Exchange,
    generation: Generation,
    answer: Answer,
    commit: Commit | None = None,
    left: Callable[[], None] = lambda: None,
) -> EventStream:
    """Return an SSE response that ends with the API's own last event, for success or failure.
    ``left`` as in ``stream_events``."""
    exchange.record.status = 200
    outlet = Outlet[bytes]()
    return EventStream(
        stream_events(exchange, generation, answer.stream(), commit, outlet, left),
        exchange.headers,
        patience=exchange.patience,
        keep_alive=exchange.keep_alive,
        cut=exchange.fail,
        flush=exchange.record.flush,
        outlet=outlet,
    )
