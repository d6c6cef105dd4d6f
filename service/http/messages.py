"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, Anthropic's API."""

from __future__ import annotations

import uuid

from litestar import Response, post

from service.http.answering import answer_whole
from service.http.call import HttpCall
from service.http.replay import stream_answer
from service.preparation.jobs import (
    Answered,
    CountTokensJob,
    MessagesJob,
    PreparedMessages,
)
from service.serving.prepare import prepare, start
from service.serving.services import Services
from service.wire.messages.answer import MessagesAnswer


@post("/v1/messages", status_code=200, opt={"route": "messages"})
async def messages(request: HttpCall) -> Response[bytes]:
    client = request.requester
    exchange, record = client.exchange, client.exchange.record
    record.operation = "chat"
    body = await request.read()
    prepared = await prepare(MessagesJob, PreparedMessages, body, client, admit=client.admit)
    del body  # it may be large, and an answer may take long
    wanted = prepared.request
    generation = await start(prepared, client)
    record.response_id = f"msg_{uuid.uuid4().hex}"
    thinking = wanted.thinking
    answer = MessagesAnswer(
        generation,
        client.services.signer,
        message_id=record.response_id,
        model=wanted.model,
        shows_thinking=thinking is None or thinking.display != "omitted",
        shows_timings=wanted.timings,
        cache_block=_cache_block(prepared, client.services),
    )
    if wanted.stream:
        return stream_answer(request, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)


def _cache_block(prepared: PreparedMessages, services: Services) -> int:
    """Caching needs no asking; who speaks of it is told what was written."""
    engine = services.engine
    return engine.block_size if prepared.speaks_of_caching and engine.prefix_caching else 0


@post("/v1/messages/count_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_tokens(request: HttpCall) -> Response[bytes]:
    client = request.requester
    body = await request.read()
    answered = await prepare(CountTokensJob, Answered, body, client)
    return request.answer(answered.body)
