"""The table of APIs that answer with generated text, and the common start of serving them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from service.generation.request import Generation
from service.preparation.chat import CHAT
from service.preparation.completions import COMPLETION
from service.preparation.jobs import (
    PreparedChat,
    PreparedCompletion,
    PreparedGeneration,
    PreparedMessages,
)
from service.preparation.messages import MESSAGES
from service.preparation.work import Step
from service.serving.client import Client
from service.serving.prepare import prepare, start
from service.serving.stream import Answer
from service.wire.chat.answer import ChatAnswer
from service.wire.completions.answer import CompletionAnswer
from service.wire.messages.answer import MessagesAnswer
from service.wire.tiers import ANTHROPIC_USED, OPENAI_USED

_Made = TypeVar("_Made", bound=PreparedGeneration)
_Encoder = TypeVar("_Encoder")


@dataclass(frozen=True, slots=True)
class Api(Generic[_Made, _Encoder]):
    """``operation``: the name in telemetry. ``id_prefix``: of the answers' ids; empty if they have
    none. ``encoder``: creates the answer's encoder for the running generation."""

    operation: str
    id_prefix: str
    step: Step[_Made]
    encoder: Callable[[_Made, Generation, Client], _Encoder]


class Begun(NamedTuple, Generic[_Encoder]):
    generation: Generation
    encoder: _Encoder


async def begin(api: Api[_Made, _Encoder], body: bytes, client: Client) -> Begun[_Encoder]:
    """Prepare a request and start its generation. Raises QuireError, in which case nothing is
    running."""
    record = client.exchange.record
    record.operation = api.operation
    preparing = prepare(api.step, body, client, admit=client.admit)
    del body  # it may be large, and the answer may take long
    prepared = await preparing
    generation = await start(prepared, client)
    if api.id_prefix:
        record.response_id = client.services.ids.new(api.id_prefix)
    return Begun(generation, api.encoder(prepared, generation, client))


def _chat(prepared: PreparedChat, generation: Generation, client: Client) -> Answer:
    record = client.exchange.record
    return ChatAnswer(
        prepared.request,
        generation,
        client.services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
        tier=OPENAI_USED[client.exchange.service_class] if prepared.request.service_tier else None,
    )


def _completion(prepared: PreparedCompletion, generation: Generation, client: Client) -> Answer:
    record = client.exchange.record
    return CompletionAnswer(
        prepared.request,
        generation,
        client.services.checkpoint.vocabulary,
        response_id=record.response_id,
        created=int(time.time()),
        model=record.model,
        texts=prepared.texts,
    )


def _messages(prepared: PreparedMessages, generation: Generation, client: Client) -> Answer:
    request, engine = prepared.request, client.services.engine
    thinking = request.thinking
    # Caching does not have to be requested; clients that mention it get the number of tokens
    # cached.
    reports_writes = prepared.speaks_of_caching and engine.prefix_caching
    return MessagesAnswer(
        generation,
        client.services.signer,
        message_id=client.exchange.record.response_id,
        model=request.model,
        shows_thinking=thinking is None or thinking.display != "omitted",
        shows_timings=request.timings,
        only_prompt=request.only_prompt,
        cache_block=engine.block_size if reports_writes else 0,
        tier=ANTHROPIC_USED[client.exchange.service_class] if request.service_tier else None,
    )


CHAT_API = Api("chat", "chatcmpl-", CHAT, _chat)
COMPLETIONS_API = Api("text_completion", "cmpl-", COMPLETION, _completion)
MESSAGES_API = Api("chat", "msg_", MESSAGES, _messages)
