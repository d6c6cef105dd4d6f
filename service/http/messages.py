"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, Anthropic's API."""

from __future__ import annotations

import uuid

from litestar import Response, post
from litestar.datastructures import State

from service.http.answering import HttpRequest, answer_whole, respond
from service.http.body import read_body
from service.http.prepare import client_of, prepare, start
from service.http.replay import stream_answer
from service.http.services import Services
from service.preparation.jobs import (
    Answered,
    CountTokensJob,
    MessagesJob,
    PreparedMessages,
)
from service.wire.messages.answer import MessagesAnswer


@post("/v1/messages", status_code=200, opt={"route": "messages"})
async def messages(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    exchange, record = client.exchange, client.exchange.record
    record.operation = "chat"
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    prepared = await prepare(MessagesJob, PreparedMessages, body, client, admit=client.admit)
    del body  # it may be large, and an answer may take long
    wanted = prepared.request
    generation = await start(prepared, client)
    record.response_id = f"msg_{uuid.uuid4().hex}"
    thinking = wanted.thinking
    answer = MessagesAnswer(
        generation,
        services.signer,
        message_id=record.response_id,
        model=wanted.model,
        shows_thinking=thinking is None or thinking.display != "omitted",
        shows_timings=wanted.timings,
        cache_block=_cache_block(prepared, services),
    )
    if wanted.stream:
        return stream_answer(request, services, exchange, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)


def _cache_block(prepared: PreparedMessages, services: Services) -> int:
    """Caching needs no asking; who speaks of it is told what was written."""
    engine = services.engine
    return engine.block_size if prepared.speaks_of_caching and engine.prefix_caching else 0


@post("/v1/messages/count_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_tokens(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    answered = await prepare(CountTokensJob, Answered, body, client)
    client.exchange.succeed("stop")
    return respond(client.exchange, answered.body)
