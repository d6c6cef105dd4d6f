"""``POST /v1/completions``, also at ``/completions``."""

from __future__ import annotations

import time
import uuid

from litestar import Response, post
from litestar.datastructures import State

from service.generation.constraint import ConstraintRequest
from service.generation.formats import PLAIN
from service.routes.answering import HttpRequest, answer_whole, exchange_of
from service.routes.body import read_body
from service.routes.prepare import completion_generation, completion_prompts, constrained
from service.routes.replay import stream_answer
from service.routes.services import Services
from service.wire.completions import decode_completion
from service.wire.completions_answer import CompletionAnswer
from service.wire.structured_output import answer_shape


@post("/v1/completions", status_code=200, opt={"route": "completions"})
async def completions(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    settings = services.settings
    body = await read_body(request.scope, request.receive, limit=settings.max_body_bytes)
    completion = decode_completion(body, max_choices=settings.max_choices, ignored=exchange.ignored)
    record.operation = "text_completion"
    record.stream = bool(completion.stream)
    record.model = services.model_name(completion.model)
    record.client_request_id = record.client_request_id or completion.request_id
    services.admission.check(exchange.caller)
    prompts, texts = await completion_prompts(completion, services)
    wanted = completion_generation(completion, prompts, services, record)
    asked = ConstraintRequest(answer=answer_shape(completion))
    wanted = await constrained(wanted, asked, PLAIN, services, exchange.ignored)
    generation = services.generator.start(wanted, exchange.caller)
    exchange.began(generation)
    record.response_id = f"cmpl-{uuid.uuid4().hex}"
    answer = CompletionAnswer(
        completion,
        generation,
        services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
        texts=texts,
    )
    if completion.stream:
        return stream_answer(request, services, exchange, generation, answer)
    return await answer_whole(exchange, generation, answer, request.receive)
