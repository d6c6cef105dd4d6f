"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
import uuid

from litestar import Response, post
from litestar.datastructures import State

from service.routes.answering import (
    HttpRequest,
    answer_whole,
    exchange_of,
)
from service.routes.body import read_body
from service.routes.prepare import start_conversation
from service.routes.replay import stream_answer
from service.routes.services import Services
from service.wire.chat import chat_conversation, decode_chat
from service.wire.chat_answer import ChatAnswer
from service.wire.structured_output import answer_shape


@post("/v1/chat/completions", status_code=200, opt={"route": "chat_completions"})
async def chat_completions(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    settings = services.settings
    body = await read_body(request.scope, request.receive, limit=settings.max_body_bytes)
    chat = decode_chat(body, max_choices=settings.max_choices, ignored=exchange.ignored)
    record.operation = "chat"
    record.stream = bool(chat.stream)
    record.model = services.model_name(chat.model)
    record.client_request_id = record.client_request_id or chat.request_id
    services.admission.check(exchange.caller)
    generation = await start_conversation(
        chat_conversation(chat),
        chat,
        services,
        exchange,
        body_size=len(body),
        token_limit=chat.token_limit,
        logprobs=chat.engine_logprobs,
        answer=answer_shape(chat),
    )
    record.response_id = f"chatcmpl-{uuid.uuid4().hex}"
    answer = ChatAnswer(
        chat,
        generation,
        services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
    )
    if chat.stream:
        return stream_answer(request, services, exchange, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)
