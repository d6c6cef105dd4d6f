"""``POST /v1/responses/compact`` and ``POST /v1/responses/input_tokens``."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from litestar import Response, post
from litestar.datastructures import State

from service.http.answering import HttpRequest, finish_whole, respond
from service.http.body import read_body
from service.http.prepare import client_of
from service.http.responses.create import begin_response, with_stored
from service.http.services import Services
from service.preparation.jobs import Answered, InputTokensJob
from service.wire.responses.compaction import CompactedResponse


class _Summary(msgspec.Struct):
    created_at: int
    output: list[msgspec.Raw]
    usage: msgspec.Raw


@post("/v1/responses/compact", status_code=200, opt={"route": "responses"})
async def compact_response(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    begun = await begin_response(request, client, compacts=True)
    await finish_whole(client.exchange, begun.generation, request.receive, begun.answer)
    answer = msgspec.json.decode(b"".join(begun.answer.whole()), type=_Summary)
    kept = msgspec.json.decode(begun.said, type=list[msgspec.Raw])
    client.exchange.succeed("stop")
    compacted = CompactedResponse(
        id=begun.answer.id,
        created_at=answer.created_at,
        output=cast(list[dict[str, Any]], [*kept, *answer.output]),
        usage=cast(Any, answer.usage),
    )
    return respond(client.exchange, msgspec.json.encode(compacted))


@post("/v1/responses/input_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_input_tokens(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    answered = await with_stored(InputTokensJob, body, request, client, {"response_id": "resp_"})
    assert isinstance(answered, Answered)
    client.exchange.succeed("stop")
    return respond(client.exchange, answered.body)
