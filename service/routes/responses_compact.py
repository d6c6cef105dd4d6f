"""``POST /v1/responses/compact`` and ``POST /v1/responses/input_tokens``."""

from __future__ import annotations

import msgspec
from litestar import Response, post
from litestar.datastructures import State

from service.routes.answering import HttpRequest, exchange_of, finish_whole, respond
from service.routes.body import read_body
from service.routes.exchange import key_owner
from service.routes.prepare import render
from service.routes.responses import begin_response
from service.routes.responses_keeping import Archive
from service.routes.services import Services
from service.wire.responses import decode_responses
from service.wire.responses_compaction import (
    TRIGGER,
    CompactedResponse,
    InputTokens,
    user_messages,
)
from service.wire.responses_conversation import own_items, read_request
from service.wire.responses_input import with_ids


@post("/v1/responses/compact", status_code=200, opt={"route": "responses"})
async def compact_response(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    body = await read_body(request.scope, request.receive, limit=services.settings.max_body_bytes)
    wanted = decode_responses(body, exchange.ignored)
    items = [*own_items(wanted), {"type": TRIGGER}]
    wanted = msgspec.structs.replace(
        wanted, input=items, stream=False, store=False, background=False
    )
    begun = await begin_response(request, services, wanted, len(body))
    await finish_whole(exchange, begun.generation, request.receive, begun.answer)
    answer = msgspec.json.decode(b"".join(begun.answer.whole()))
    kept = with_ids(user_messages([*begun.history, *begun.items]), begun.answer.id)
    exchange.succeed("stop")
    compacted = CompactedResponse(
        id=begun.answer.id,
        created_at=answer["created_at"],
        output=[*kept, *answer["output"]],
        usage=answer["usage"],
    )
    return respond(exchange, msgspec.json.encode(compacted))


@post("/v1/responses/input_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_input_tokens(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    body = await read_body(request.scope, request.receive, limit=services.settings.max_body_bytes)
    wanted = decode_responses(body, exchange.ignored)
    exchange.record.model = services.model_name(wanted.model)
    owner = key_owner(request.scope, services.settings.keys)
    if wanted.previous_response_id is not None:
        await services.store.attempted()
    archive = Archive(services.store, services.runs, owner)
    history = await archive.history(wanted.previous_response_id)
    items = await archive.resolve(own_items(wanted), history)
    read = read_request(wanted, history, items, lambda text: services.seal.open(text, owner))
    exchange.ignored.add(*read.ignored)
    prompt = await render(read.conversation, services.checkpoint, body_size=len(body))
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(InputTokens(input_tokens=len(prompt.ids))))
