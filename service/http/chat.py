"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
import uuid

from litestar import Response, post

from service.http.answering import answer_whole
from service.http.call import HttpCall
from service.http.replay import stream_answer
from service.preparation.jobs import ChatJob, PreparedChat
from service.serving.prepare import prepare, start
from service.wire.chat.answer import ChatAnswer


@post("/v1/chat/completions", status_code=200, opt={"route": "chat_completions"})
async def chat_completions(request: HttpCall) -> Response[bytes]:
    client = request.requester
    exchange, record = client.exchange, client.exchange.record
    record.operation = "chat"
    body = await request.read()
    prepared = await prepare(ChatJob, PreparedChat, body, client, admit=client.admit)
    del body  # it may be large, and an answer may take long
    chat = prepared.request
    generation = await start(prepared, client)
    record.response_id = f"chatcmpl-{uuid.uuid4().hex}"
    answer = ChatAnswer(
        chat,
        generation,
        client.services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
    )
    if chat.stream:
        return stream_answer(request, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)
