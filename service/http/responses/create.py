"""``POST /v1/responses``."""

from __future__ import annotations

import time
import uuid
from typing import Any, NamedTuple

from litestar import Response, post

from service.errors import InvalidRequestError, NotFoundError
from service.generation.request import Generation
from service.http.answering import answer_stream, answer_whole
from service.http.call import HttpCall, respond
from service.http.replay import follow_run, start_run, wants_resumable
from service.http.responses.keeping import Archive, Keeping
from service.http.responses.memory import ON_CONNECTION, Exchanged
from service.preparation.jobs import History, Needs, Prepared, PreparedResponse, WarmedUp
from service.preparation.responses import MESSAGE, RESPONSES, WARM_UP
from service.preparation.work import Step
from service.serving.client import Client
from service.serving.prepare import prepare, start
from service.wire.responses.answer import ResponseAnswer
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.tools import Toolbox

# Bytes of all stored responses that one request refers to.
_MOST_REFERRED_BYTES = 32 * 1024 * 1024
_MOST_REFERRED = 256


class Begun(NamedTuple):
    """A response whose generation has begun. ``said``: what of the conversation the user said, as
    JSON, where it is compacted."""

    wanted: ResponsesRequest
    generation: Generation
    answer: ResponseAnswer
    keeping: Keeping
    said: bytes
    resumable: bool


@post("/v1/responses", status_code=200, opt={"route": "responses"})
async def create_response(request: HttpCall) -> Response[bytes]:
    client = request.requester
    exchange = client.exchange
    message = _exchanged(request)
    if message is not None and message.warms_up:
        return await _warm_up(request, client, message)
    begun = await begin_response(request, client)
    wanted, generation, answer = begun.wanted, begun.generation, begun.answer
    keeping = begun.keeping
    if message is not None:
        message.response_id, message.keeping = answer.id, keeping
    if not (wanted.stream or wanted.background):
        return await answer_whole(exchange, generation, answer, request.receive, keeping.commit)
    if not begun.resumable:
        return answer_stream(exchange, generation, answer, keeping.commit)
    keeping.runs = True
    keeping.background = bool(wanted.background)
    await keeping.begin()
    stream = answer.stream()
    run = start_run(
        client,
        generation,
        stream,
        background=keeping.background,
        subject=keeping,
        commit=keeping.commit,
    )
    if wanted.stream:
        return follow_run(exchange, run, 0)
    return respond(exchange, stream.body)


def _exchanged(request: HttpCall) -> Exchanged | None:
    found: Exchanged | None = request.scope["state"].get(ON_CONNECTION)
    return found


async def _warm_up(request: HttpCall, client: Client, message: Exchanged) -> Response[bytes]:
    body = await request.read()
    message.response_id = f"resp_{uuid.uuid4().hex}"
    fields = {"response_id": message.response_id, "created": int(time.time())}
    made = await with_stored(WARM_UP, body, request, client, fields)
    assert isinstance(made, WarmedUp)
    message.history = made.history
    client.exchange.succeed("stop")
    client.exchange.record.status = 200
    return Response(
        content=made.events,
        status_code=200,
        media_type="text/event-stream",
        headers=client.exchange.headers,
    )


async def begin_response(request: HttpCall, client: Client, *, compacts: bool = False) -> Begun:
    """``compacts``: whatever the request says, a summary is asked for. Raises QuireError."""
    services, exchange, owner = client.services, client.exchange, client.owner
    record = exchange.record
    record.operation = "chat"
    body = await request.read()
    response_id = f"resp_{uuid.uuid4().hex}"
    message = _exchanged(request)
    step = RESPONSES if message is None else MESSAGE
    fields = {
        "response_id": response_id,
        "compacts": compacts,
        "remembered": message is not None,
    }
    prepared = await with_stored(step, body, request, client, fields)
    del body  # it may be large, and an answer may take long
    assert isinstance(prepared, PreparedResponse)
    wanted = prepared.request
    resumable = wants_resumable(request) or _lasts(wanted)
    if resumable:
        services.runs.check(exchange.caller)
    promised = bool(wanted.store or wanted.background)
    if wanted.kept:
        await services.store.attempted()
    if promised:
        services.store.require()
    kept = wanted.kept and services.store.available
    generation = await start(prepared, client)
    created = int(time.time())
    record.response_id = response_id
    keeping = Keeping(
        services.store,
        response_id=response_id,
        owner=owner,
        created=created,
        items=prepared.items,
        context=prepared.context,
        promised=promised,
        wanted=kept,
    )
    answer = keeping.answer = ResponseAnswer(
        wanted,
        generation,
        services.checkpoint.vocabulary,
        Toolbox.named(prepared.toolbox),
        response_id=response_id,
        created=created,
        model=record.model,
        ignored=exchange.ignored.names,
        echoed=prepared.echoed,
        stored=kept,
        seal=lambda text: services.seal.seal(text, owner),
        compacts=prepared.compacts,
        on_end=keeping.on_end,
    )
    return Begun(wanted, generation, answer, keeping, prepared.said, resumable)


def _lasts(wanted: ResponsesRequest) -> bool:
    """Whether it may be asked for again while it runs: it was said to be stored, not by default."""
    return bool(wanted.background or (wanted.store and wanted.stream))


async def with_stored(
    step: Step[Any],
    body: bytes,
    request: HttpCall,
    client: Client,
    fields: dict[str, Any],
) -> Prepared:
    """What a request comes to, with what it refers to in the store. Raises QuireError."""
    fields = {**fields, "owner": client.owner}
    message = _exchanged(request)
    known = None if message is None else message.previous
    admit = client.admit if step in (RESPONSES, MESSAGE) else None
    made: Prepared = await prepare(step, body, client, admit=admit, **fields)
    if not isinstance(made, Needs):
        return made
    archive = Archive(client.services.store, client.services.runs, client.owner)
    fields |= {"stored": True, **await _found(made, archive, known)}
    answered: Prepared = await prepare(step, body, client, **fields)
    return answered


async def _found(needs: Needs, archive: Archive, known: History | None) -> dict[str, Any]:
    """The stored responses that a request refers to, as fields of its job; those that are not there
    are left out. Raises QuireError for a history that cannot be continued, or too much of it."""
    previous = known or await archive.history(needs.previous)
    referred: dict[str, History] = {}
    size = 0 if previous is None else previous.size
    for response_id in needs.referred:
        try:
            found = referred[response_id] = await archive.items_of(response_id)
        except NotFoundError:
            continue
        size += found.size
        if size > _MOST_REFERRED_BYTES or len(referred) > _MOST_REFERRED:
            raise InvalidRequestError(
                "The stored responses that 'input' refers to are too large together.",
                param="input",
            )
    return {"previous": previous, "referred": referred}
