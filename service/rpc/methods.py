"""The methods of quire.v1.Quire, each a few lines: decode, ask admission, start, stream."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Final, NamedTuple

from service.generation.constraint import ConstraintRequest
from service.generation.formats import PLAIN
from service.pooling.scores import floats_of
from service.routes.embeddings import embedded
from service.routes.models import model_card
from service.routes.prepare import (
    completion_generation,
    completion_prompts,
    constrained,
    start_conversation,
)
from service.rpc.call import Call, Method
from service.rpc.decode import decoded, read_chat, read_completion, read_embedding, read_known
from service.rpc.events import ChatEvents, GenerateEvents
from service.rpc.proto.quire.v1 import quire_pb2 as pb
from service.wire.chat import chat_conversation
from service.wire.structured_output import answer_shape

SERVICE: Final = "quire.v1.Quire"


async def chat(call: Call, message: bytes) -> None:
    services, exchange = call.services, call.exchange
    record = exchange.record
    read = functools.partial(
        read_chat, max_choices=services.settings.max_choices, ignored=exchange.ignored
    )
    asked, size = await decoded(message, read)
    record.operation, record.stream = "chat", True
    record.model = services.model_name(asked.model)
    services.admission.check(exchange.caller)
    generation = await start_conversation(
        chat_conversation(asked),
        asked,
        services,
        exchange,
        body_size=size,
        token_limit=asked.token_limit,
        logprobs=asked.engine_logprobs,
        answer=answer_shape(asked),
    )
    events = ChatEvents(
        generation,
        services.checkpoint.vocabulary,
        model=record.model,
        created=int(time.time()),
        logprobs=asked.engine_logprobs,
    )
    await call.stream(generation, events)


async def generate(call: Call, message: bytes) -> None:
    services, exchange = call.services, call.exchange
    record = exchange.record
    read = functools.partial(
        read_completion, max_choices=services.settings.max_choices, ignored=exchange.ignored
    )
    asked = await decoded(message, read)
    record.operation, record.stream = "text_completion", True
    record.model = services.model_name(asked.model)
    services.admission.check(exchange.caller)
    prompts, _ = await completion_prompts(asked, services)
    wanted = completion_generation(asked, prompts, services, record)
    form = ConstraintRequest(answer=answer_shape(asked))
    wanted = await constrained(wanted, form, PLAIN, services, exchange.ignored)
    generation = services.generator.start(wanted, exchange.caller)
    exchange.began(generation)
    events = GenerateEvents(
        generation,
        services.checkpoint.vocabulary,
        model=record.model,
        created=int(time.time()),
        logprobs=asked.logprobs,
    )
    await call.stream(generation, events)


async def embed(call: Call, message: bytes) -> None:
    services, exchange = call.services, call.exchange
    record = exchange.record
    asked = await decoded(message, functools.partial(read_embedding, ignored=exchange.ignored))
    record.operation = "embeddings"
    record.model = services.model_name(asked.model)
    pooled = await embedded(asked, services, exchange)
    response = pb.EmbedResponse(model=record.model, prompt_tokens=pooled.prompt_tokens)
    for vector in pooled.vectors:
        response.embeddings.add(values=floats_of(vector))
        await asyncio.sleep(0)  # thousands of vectors would hold up others' streams
    exchange.succeed("stop")
    await call.send(response.SerializeToString())


async def list_models(call: Call, message: bytes) -> None:
    read_known(pb.ListModelsRequest, message)
    cards = [model_card(call.services, name) for name in call.services.names]
    models = [
        pb.Model(
            id=card.id,
            created=card.created,
            owned_by=card.owned_by,
            root=card.root,
            max_model_len=card.max_model_len,
            architecture=card.architecture,
            tasks=card.tasks,
        )
        for card in cards
    ]
    call.exchange.succeed("stop")
    await call.send(pb.ListModelsResponse(models=models).SerializeToString())


async def abort(call: Call, message: bytes) -> None:
    request = read_known(pb.AbortRequest, message)
    call.running.abort(request.request_id, call.owner)
    call.exchange.succeed("stop")
    await call.send(pb.AbortResponse().SerializeToString())


class Served(NamedTuple):
    """``route``: one of observability.catalogue.ROUTES."""

    route: str
    method: Method


METHODS: Final = {
    "Chat": Served("grpc_chat", chat),
    "Generate": Served("grpc_generate", generate),
    "Embed": Served("grpc_embed", embed),
    "ListModels": Served("grpc_models", list_models),
    "Abort": Served("grpc_abort", abort),
}
