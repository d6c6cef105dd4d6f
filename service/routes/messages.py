"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, Anthropic's API."""

from __future__ import annotations

import uuid

import msgspec
from litestar import Response, post
from litestar.datastructures import State

from service.routes.answering import (
    HttpRequest,
    answer_whole,
    exchange_of,
    respond,
)
from service.routes.body import read_body
from service.routes.prepare import render, start_conversation
from service.routes.replay import stream_answer
from service.routes.services import Services
from service.wire.messages import (
    answer_shape,
    decode_count,
    decode_messages,
    messages_conversation,
)
from service.wire.messages_answer import MessagesAnswer, TokenCount


@post("/v1/messages", status_code=200, opt={"route": "messages"})
async def messages(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_messages(body, exchange.ignored)
    record.operation = "chat"
    record.stream = wanted.stream
    record.model = services.model_name(wanted.model)
    services.admission.check(exchange.caller)
    generation = await start_conversation(
        messages_conversation(wanted, services.signer),
        wanted.sampling(),
        services,
        exchange,
        body_size=len(body),
        token_limit=wanted.max_tokens,
        answer=answer_shape(wanted),
    )
    record.response_id = f"msg_{uuid.uuid4().hex}"
    thinking = wanted.thinking
    answer = MessagesAnswer(
        generation,
        services.signer,
        message_id=record.response_id,
        model=wanted.model,
        shows_thinking=thinking is None or thinking.display != "omitted",
        shows_timings=wanted.timings,
        cache_block=_cache_block(body, services),
    )
    if wanted.stream:
        return stream_answer(request, services, exchange, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)


def _cache_block(body: bytes, services: Services) -> int:
    """Caching needs no asking; who speaks of it is told what was written."""
    # In a text the quotes would be escaped.
    asks = b'"cache_control"' in body
    return services.engine.block_size if asks and services.engine.prefix_caching else 0


@post("/v1/messages/count_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_tokens(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_count(body, exchange.ignored)
    exchange.record.model = services.model_name(wanted.model)
    conversation = messages_conversation(wanted, services.signer)
    prompt = await render(conversation, services.checkpoint, body_size=len(body))
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(TokenCount(len(prompt.ids))))
