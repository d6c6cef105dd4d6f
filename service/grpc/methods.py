"""The methods of quire.v1.Quire, each a few lines: decode, check admission, start, stream."""

from __future__ import annotations

import asyncio
import time
from typing import Final, TypeVar

from service.generation.request import Generation
from service.grpc.call import Call, MessageStream, Method
from service.grpc.embedded import embed_response
from service.grpc.events import ChatEvents, GenerateEvents
from service.peers.requests import ABORT, ask_owner
from service.preparation.chat import GRPC_CHAT
from service.preparation.completions import GRPC_COMPLETION
from service.preparation.embeddings import GRPC_EMBEDDINGS
from service.preparation.jobs import PreparedChat, PreparedCompletion, PreparedGeneration
from service.proto.quire.v1 import quire_pb2 as pb
from service.serving.api import Api, begin
from service.serving.client import Client
from service.serving.model_cards import model_cards
from service.serving.pooling import embed
from service.wire.protobuf.decode import read_small
from service.wire.sampling import SamplingFields
from service.wire.tiers import OPENAI_USED

SERVICE: Final = "quire.v1.Quire"

_Made = TypeVar("_Made", bound=PreparedGeneration)


def _chat_events(prepared: PreparedChat, generation: Generation, client: Client) -> MessageStream:
    return ChatEvents(
        generation,
        client.services.checkpoint.vocabulary,
        model=client.exchange.record.model,
        created=int(time.time()),
        logprobs=prepared.request.engine_logprobs,
        tier=_tier(prepared.request, client),
    )


def _generate_events(
    prepared: PreparedCompletion, generation: Generation, client: Client
) -> MessageStream:
    return GenerateEvents(
        generation,
        client.services.checkpoint.vocabulary,
        model=client.exchange.record.model,
        created=int(time.time()),
        logprobs=prepared.request.logprobs,
        tier=_tier(prepared.request, client),
    )


def _tier(request: SamplingFields, client: Client) -> str | None:
    """Return the tier used, if the request has set one."""
    return OPENAI_USED[client.exchange.service_class] if request.service_tier else None


def _streaming(api: Api[_Made, MessageStream]) -> Method:
    """Return a method that answers with a stream of the API's events."""

    async def method(call: Call, message: bytes) -> None:
        call.exchange.record.stream = True
        beginning = begin(api, message, call.client)
        del message  # it may be large, and the answer may take long
        await call.stream(*await beginning)

    return method


async def embed_texts(call: Call, message: bytes) -> None:
    embedding = embed(GRPC_EMBEDDINGS, message, call.client)
    del message  # it may be large, and the answer may take long
    _, pooled = await embedding
    call.exchange.succeed("stop")
    model = call.exchange.record.model
    # Joining many long vectors takes as long as sending them: two holds of the loop in one.
    response = await asyncio.to_thread(
        embed_response, pooled.vectors, model=model, prompt_tokens=pooled.prompt_tokens
    )
    await call.send(response)


async def models(call: Call, message: bytes) -> None:
    read_small(pb.ListModelsRequest, message)
    listed = [
        pb.Model(
            id=card.id,
            created=card.created,
            owned_by=card.owned_by,
            root=card.root,
            max_model_len=card.max_model_len,
            architecture=card.architecture,
            tasks=card.tasks,
        )
        for card in model_cards(call.client)
    ]
    call.exchange.succeed("stop")
    await call.send(pb.ListModelsResponse(models=listed).SerializeToString())


async def abort(call: Call, message: bytes) -> None:
    request = read_small(pb.AbortRequest, message)
    asked = request.request_id
    found = await ask_owner(call.services.peers, ABORT, asked, call.owner)
    if found is None:
        call.services.running.abort(asked, call.owner)
    call.exchange.succeed("stop")
    await call.send(pb.AbortResponse().SerializeToString())


METHODS: Final[dict[str, Method]] = {
    "Chat": _streaming(Api("chat", "", GRPC_CHAT, _chat_events)),
    "Generate": _streaming(Api("text_completion", "", GRPC_COMPLETION, _generate_events)),
    "Embed": embed_texts,
    "ListModels": models,
    "Abort": abort,
}
