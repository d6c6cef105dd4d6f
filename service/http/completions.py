"""``POST /v1/completions``, also at ``/completions``."""

from __future__ import annotations

import time
import uuid

from litestar import Response, post

from service.http.answering import answer_whole
from service.http.call import HttpCall
from service.http.replay import stream_answer
from service.preparation.jobs import CompletionJob, PreparedCompletion
from service.serving.prepare import prepare, start
from service.wire.completions.answer import CompletionAnswer


@post("/v1/completions", status_code=200, opt={"route": "completions"})
async def completions(request: HttpCall) -> Response[bytes]:
    client = request.requester
    exchange, record = client.exchange, client.exchange.record
    record.operation = "text_completion"
    body = await request.read()
    prepared = await prepare(CompletionJob, PreparedCompletion, body, client, admit=client.admit)
    del body  # it may be large, and an answer may take long
    completion = prepared.request
    generation = await start(prepared, client)
    record.response_id = f"cmpl-{uuid.uuid4().hex}"
    answer = CompletionAnswer(
        completion,
        generation,
        client.services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
        texts=prepared.texts,
    )
    if completion.stream:
        return stream_answer(request, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)
