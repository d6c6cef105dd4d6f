"""``POST /v1/responses``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from litestar import Response

from service.errors import InvalidRequestError, NotFoundError
from service.generation.request import Generation
from service.http.answering import answer_stream, answer_whole
from service.http.call import HttpCall, respond
from service.http.replay import follow_run, start_run, wants_resumable
from service.http.responses.lifecycle import (
    Delivery,
    Lifecycle,
    ResponseLifecycle,
    Storage,
    lifecycle_of,
)
from service.http.responses.lookup import ResponseLookup
from service.http.responses.memory import ON_CONNECTION, Exchanged
from service.http.serves import serves
from service.preparation.history import NO_STORE
from service.preparation.jobs import History, Needs, Prepared, PreparedResponse, WarmedUp
from service.preparation.responses import MESSAGE, RESPONSES, WARM_UP
from service.preparation.work import Step
from service.serving.client import Client
from service.serving.prepare import prepare, start
from service.store.record import StoredResponse
from service.wire.responses.answer import ResponseAnswer, ResponseEnding
from service.wire.responses.tools import Toolbox
from service.wire.tiers import OPENAI_USED

# Total size of the stored responses that one request may refer to.
_MOST_REFERRED_BYTES = 32 * 1024 * 1024
_MOST_REFERRED = 256


class BegunResponse(NamedTuple):
    """``said``: the user's part of the conversation as JSON, if it is being compacted."""

    generation: Generation
    lifecycle: ResponseLifecycle
    said: bytes


@serves("POST /v1/responses")
async def create_response(request: HttpCall) -> Response[bytes]:
    client = request.requester
    message = _exchanged(request)
    if message is not None and message.warms_up:
        return await _warm_up(request, client, message)
    begun = await begin_response(request, client)
    if message is not None:
        message.response_id, message.lifecycle = begun.lifecycle.answer.id, begun.lifecycle
    return await _respond(request, client, begun)


async def _respond(request: HttpCall, client: Client, begun: BegunResponse) -> Response[bytes]:
    exchange, generation, lifecycle = client.exchange, begun.generation, begun.lifecycle
    answer, plan = lifecycle.answer, lifecycle.plan
    if plan.delivery is Delivery.WHOLE:
        return await answer_whole(exchange, generation, answer, request.receive, lifecycle.commit)
    if not plan.runs:
        return answer_stream(exchange, generation, answer, lifecycle.commit, lifecycle.left)
    await lifecycle.begin()
    stream = answer.stream()
    run = start_run(
        client,
        generation,
        stream,
        background=plan.background,
        subject=lifecycle,
        commit=lifecycle.commit,
    )
    if plan.streams:
        return follow_run(exchange, run, 0)
    return respond(exchange, stream.body)


def _exchanged(request: HttpCall) -> Exchanged | None:
    found: Exchanged | None = request.scope["state"].get(ON_CONNECTION)
    return found


async def _warm_up(request: HttpCall, client: Client, message: Exchanged) -> Response[bytes]:
    body = await request.read()
    message.response_id = client.services.ids.new("resp_")
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


async def begin_response(
    request: HttpCall, client: Client, *, compacts: bool = False
) -> BegunResponse:
    """Start a response. ``compacts``: generate a summary, regardless of the request. Raises
    QuireError."""
    record = client.exchange.record
    record.operation = "chat"
    response_id = client.services.ids.new("resp_")
    message = _exchanged(request)
    body = await request.read()
    prepared = await with_stored(
        RESPONSES if message is None else MESSAGE,
        body,
        request,
        client,
        {"response_id": response_id, "compacts": compacts, "remembered": message is not None},
    )
    assert isinstance(prepared, PreparedResponse)
    # The body as read, and what is generated from it.
    client.exchange.hold(len(body) + prepared.size)
    del body  # it may be large, and the answer may take long
    wanted = lifecycle_of(prepared.request, resumable=wants_resumable(request))
    lifecycle = await _affordable(wanted, client)
    generation = await start(prepared, client)
    if lifecycle.storage is not wanted.storage:
        client.services.store.note_unstored()
    record.response_id = response_id
    return BegunResponse(
        generation, _living(prepared, generation, lifecycle, client), prepared.said
    )


async def _affordable(lifecycle: Lifecycle, client: Client) -> Lifecycle:
    """Reduce the lifecycle to what the server can provide now. Raises OverloadedError if there are
    too many runs, StoreUnavailableError or InvalidRequestError if the response must be stored and
    cannot be now, or ever."""
    store = client.services.store
    if lifecycle.runs:
        client.services.runs.check(client.exchange.caller)
    if lifecycle.storage is Storage.NONE:
        return lifecycle
    await store.attempted()
    if lifecycle.storage is Storage.REQUIRED:
        if not store.is_configured:
            raise _not_stored_here(lifecycle)
        store.require()
    return lifecycle if store.available else lifecycle._replace(storage=Storage.NONE)


def _not_stored_here(lifecycle: Lifecycle) -> InvalidRequestError:
    if not lifecycle.background:
        return InvalidRequestError(NO_STORE, param="store")
    return InvalidRequestError(
        "This server stores no responses (--store-url none), so none can run in the background. "
        "Stream the response, or start the server with a store.",
        param="background",
    )


def _living(
    prepared: PreparedResponse, generation: Generation, lifecycle: Lifecycle, client: Client
) -> ResponseLifecycle:
    services, exchange, owner = client.services, client.exchange, client.owner
    created = int(time.time())
    response_id = exchange.record.response_id

    def make_answer(on_end: Callable[[ResponseEnding], None]) -> ResponseAnswer:
        return ResponseAnswer(
            prepared.request,
            generation,
            services.checkpoint.vocabulary,
            Toolbox.named(prepared.toolbox),
            response_id=response_id,
            created=created,
            model=exchange.record.model,
            ignored=exchange.ignored.names,
            tier=OPENAI_USED[exchange.service_class],
            echoed=prepared.echoed,
            stored=lifecycle.storage is not Storage.NONE,
            seal=lambda text: services.seal.seal(text, owner),
            compacts=prepared.compacts,
            on_end=on_end,
        )

    record = StoredResponse(
        id=response_id,
        owner=owner,
        created_at=created,
        expires_at=created + int(max(1, services.store.limits.ttl)),
        status="in_progress",
        body=b"",
        input=prepared.items,
        context=prepared.context,
    )
    return ResponseLifecycle(
        services.store, lifecycle, record, make_answer, lambda: services.drain.has_begun
    )


async def with_stored(
    step: Step[Any],
    body: bytes,
    request: HttpCall,
    client: Client,
    fields: dict[str, Any],
) -> Prepared:
    """Prepare a request together with the stored responses that it refers to. Raises QuireError."""
    has_store = client.services.store.is_configured
    fields = {**fields, "owner": client.owner, "has_store": has_store}
    message = _exchanged(request)
    known = None if message is None else message.previous
    admit = client.admit if step in (RESPONSES, MESSAGE) else None
    made: Prepared = await prepare(step, body, client, admit=admit, **fields)
    if not isinstance(made, Needs):
        return made
    lookup = _lookup(client)
    fields |= {"stored": True, **await _found(made, lookup, known)}
    answered: Prepared = await prepare(step, body, client, **fields)
    return answered


def _lookup(client: Client) -> ResponseLookup:
    services = client.services
    return ResponseLookup(services.store, services.runs, client.owner, services.peers)


async def _found(needs: Needs, lookup: ResponseLookup, known: History | None) -> dict[str, Any]:
    """Return the stored responses that a request refers to, as fields of its job; missing ones are
    left out. Raises QuireError for a history that cannot be continued or is too large."""
    previous = known or await lookup.history(needs.previous)
    referred: dict[str, History] = {}
    size = 0 if previous is None else previous.size
    for response_id in needs.referred:
        try:
            found = referred[response_id] = await lookup.items_of(response_id)
        except NotFoundError:
            continue
        size += found.size
        if size > _MOST_REFERRED_BYTES or len(referred) > _MOST_REFERRED:
            raise InvalidRequestError(
                "The stored responses that 'input' refers to are too large together.",
                param="input",
            )
    return {"previous": previous, "referred": referred}
