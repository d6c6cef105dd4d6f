"""``POST /v1/completions``, also at ``/completions``."""

from __future__ import annotations

import time
import uuid

from litestar import Response, post
from litestar.datastructures import State

from service.http.answering import HttpRequest, answer_whole
from service.http.body import read_body
from service.http.prepare import client_of, prepare, start
from service.http.replay import stream_answer
from service.http.services import Services
from service.preparation.jobs import CompletionJob, PreparedCompletion
from service.wire.completions.answer import CompletionAnswer


@post("/v1/completions", status_code=200, opt={"route": "completions"})
async def completions(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    exchange, record = client.exchange, client.exchange.record
    record.operation = "text_completion"
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    prepared = await prepare(CompletionJob, PreparedCompletion, body, client, admit=client.admit)
    del body  # it may be large, and an answer may take long
    completion = prepared.request
    generation = await start(prepared, client)
    record.response_id = f"cmpl-{uuid.uuid4().hex}"
    answer = CompletionAnswer(
        completion,
        generation,
        services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
        texts=prepared.texts,
    )
    if completion.stream:
        return stream_answer(request, services, exchange, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)
