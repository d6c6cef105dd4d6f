"""The methods of quire.v1.Quire, each a few lines: decode, ask admission, start, stream."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from service.grpc.call import Call, Method
from service.grpc.embedded import embed_response
from service.grpc.events import ChatEvents, GenerateEvents
from service.preparation.jobs import (
    GrpcChatJob,
    GrpcCompletionJob,
    GrpcEmbeddingsJob,
    PreparedChat,
    PreparedCompletion,
    PreparedEmbeddings,
)
from service.proto.quire.v1 import quire_pb2 as pb
from service.serving.model_cards import model_card
from service.serving.pooling import embedded
from service.serving.prepare import prepare, start
from service.wire.protobuf.decode import read_small

SERVICE: Final = "quire.v1.Quire"


async def chat(call: Call, message: bytes) -> None:
    services, record = call.services, call.exchange.record
    record.operation, record.stream = "chat", True
    prepared = await prepare(
        GrpcChatJob, PreparedChat, message, call.client, admit=call.client.admit
    )
    del message  # it may be large, and an answer may take long
    generation = await start(prepared, call.client)
    events = ChatEvents(
        generation,
        services.checkpoint.vocabulary,
        model=record.model,
        created=int(time.time()),
        logprobs=prepared.request.engine_logprobs,
    )
    await call.stream(generation, events)


async def generate(call: Call, message: bytes) -> None:
    services, record = call.services, call.exchange.record
    record.operation, record.stream = "text_completion", True
    prepared = await prepare(
        GrpcCompletionJob, PreparedCompletion, message, call.client, admit=call.client.admit
    )
    del message  # it may be large, and an answer may take long
    generation = await start(prepared, call.client)
    events = GenerateEvents(
        generation,
        services.checkpoint.vocabulary,
        model=record.model,
        created=int(time.time()),
        logprobs=prepared.request.logprobs,
    )
    await call.stream(generation, events)


async def embed(call: Call, message: bytes) -> None:
    record = call.exchange.record
    record.operation = "embeddings"
    prepared = await prepare(
        GrpcEmbeddingsJob, PreparedEmbeddings, message, call.client, admit=call.client.admit_open
    )
    del message  # it may be large, and an answer may take long
    pooled = await embedded(prepared, call.client)
    call.exchange.succeed("stop")
    await call.send(
        embed_response(pooled.vectors, model=record.model, prompt_tokens=pooled.prompt_tokens)
    )


async def list_models(call: Call, message: bytes) -> None:
    read_small(pb.ListModelsRequest, message)
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
    request = read_small(pb.AbortRequest, message)
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
