"""Resumable streams: any API's stream kept as a run, to be resumed after a lost connection.

A client opts in with the header ``x-quire-resumable: true``. Its stream then has ``id:`` lines and
the response the header ``x-quire-stream-id``; ``GET /v1/streams/{id}`` with ``Last-Event-ID`` (or
``?starting_after=``) returns exactly the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from litestar import Response
from litestar.params import FromPath

from service.errors import ClientGoneError, InvalidRequestError, NotFoundError
from service.generation.request import Generation
from service.generation.run import RUN_PIECE_BYTES, Run, RunListener
from service.http.answering import answer_stream
from service.http.call import HttpCall
from service.http.event_stream import EventStream
from service.http.scope import header
from service.http.serves import serves
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.stream import Answer, AnswerStream, Commit, stream_events
from service.wire.error_shapes import shape_for

_MOST_DIGITS = 18
_END = b"\n\n"


def wants_resumable(request: HttpCall) -> bool:
    return header(request.scope, b"x-quire-resumable").strip().lower() in (b"true", b"1")


def stream_answer(request: HttpCall, generation: Generation, answer: Answer) -> EventStream:
    """Like ``answer_stream``, but kept as a run if the client requested it. The run's id is the
    record's ``response_id``. Raises OverloadedError when there is no memory for another run."""
    if not wants_resumable(request):
        return answer_stream(request.exchange, generation, answer)
    run = start_run(request.requester, generation, answer.stream())
    return follow_run(request.exchange, run, 0)


def start_run(
    client: Client,
    generation: Generation,
    stream: AnswerStream[bytes],
    *,
    background: bool = False,
    subject: RunListener | None = None,
    commit: Commit | None = None,
) -> Run:
    """Start a run, which from here on owns the generation, even if the connection is lost.

    Raises OverloadedError.
    """
    exchange, runs = client.exchange, client.services.runs
    runs.check(exchange.caller)
    exchange.record.status = 200
    return runs.start(
        exchange.record.response_id,
        client.owner,
        generation,
        stream_events(exchange, generation, stream, commit),
        background=background,
        subject=subject,
        held=exchange.held,
        on_end=exchange.detach(),
    )


def follow_run(exchange: Exchange, run: Run, number: int) -> EventStream:
    """Return the run's events from ``number`` on. Cutting off a reader does not end the run.

    Raises InvalidRequestError for events that are no longer available, OverloadedError if there are
    too many readers.
    """
    run.check_readers()
    if number < run.log.first:
        raise InvalidRequestError(
            f"Events before {run.log.first} are no longer available. Resume with 'starting_after' "
            f"or 'Last-Event-ID' of at least {run.log.first - 1}.",
            param="starting_after" if number else None,
        )
    shape = shape_for(exchange.record.http_route)
    request_id = exchange.record.request_id

    def lost() -> bytes:
        error = ClientGoneError(f"Events before {run.log.first} are no longer available.")
        return b"event: error\ndata: %b\n\n" % shape(error, request_id)

    return EventStream(
        run.follow(number, lost),
        {**exchange.headers, "x-quire-stream-id": run.id},
        patience=exchange.patience,
        keep_alive=exchange.keep_alive,
        cut=lambda error: None,
        flush=exchange.record.flush,
    )


def replayed(exchange: Exchange, events: bytes, number: int) -> EventStream:
    """Like ``follow_run``, for a stored run that has ended."""

    async def rest() -> AsyncGenerator[bytes, None]:
        place = 0
        for _ in range(number):
            place = events.find(_END, place) + len(_END)
            if place < len(_END):
                return
        for start in range(place, len(events), RUN_PIECE_BYTES):
            yield events[start : start + RUN_PIECE_BYTES]

    return EventStream(
        rest(),
        exchange.headers,
        patience=exchange.patience,
        keep_alive=exchange.keep_alive,
        cut=lambda error: None,
        flush=exchange.record.flush,
    )


def first_wanted(request: HttpCall) -> int:
    """Return the number of the first event that the client needs: after ``starting_after`` and
    ``Last-Event-ID``, whichever is later, as an ``EventSource`` keeps its address when it
    reconnects; else 0. Raises InvalidRequestError."""
    return max(
        _after("starting_after", request.query_params.get("starting_after") or ""),
        _after("Last-Event-ID", header(request.scope, b"last-event-id").decode("latin-1")),
    )


def _after(name: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidRequestError(f"'{name}' must be the number of an event.", param=name)
    return int(text) + 1


@serves("GET /v1/streams/{stream_id}")
async def resume_stream(request: HttpCall, stream_id: FromPath[str]) -> Response[bytes]:
    services, exchange = request.services, request.exchange
    run = services.runs.find(stream_id, exchange.caller.owner)
    if run is None:
        raise NotFoundError(
            "There is no such stream: it was not resumable, has ended too long ago, or belongs to "
            "another key."
        )
    response = follow_run(exchange, run, first_wanted(request))
    exchange.record.status = 200
    exchange.record.stream = True
    exchange.succeed("stop")
    return response
