"""Serves requests for vectors: submits texts to the engine and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest
from service.pooling.scores import cosine, floats_of
from service.preparation.jobs import PreparedEmbeddings, PreparedRerank, PreparedScore
from service.preparation.work import Step
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.prepare import prepare
from service.serving.services import Services
from service.wire.texts.embeddings import EmbeddingRequest, PoolingUsage

_Made = TypeVar("_Made", PreparedRerank, PreparedScore)


@dataclass(frozen=True, slots=True)
class Pooled:
    """``vectors``: one for each input in order, as little-endian float32."""

    vectors: list[bytes]
    prompt_tokens: int


async def pooled_vectors(
    inputs: Sequence[Input],
    services: Services,
    exchange: Exchange,
    *,
    dimensions: int | None = None,
    activate: bool | None = None,
    priority: int = 0,
    cache_salt: str = "",
) -> Pooled:
    """Compute the inputs' vectors. Raises QuireError."""
    engine = services.engine
    exchange.count(sum(len(one.token_ids) for one in inputs))
    pooled = PooledTexts(
        services.link,
        PoolingRequest(
            request_id=exchange.record.request_id,
            inputs=inputs,
            arrival_time=exchange.record.received_time,
            # One step's inputs run while the next step's wait.
            most_open=2 * engine.max_num_seqs,
            most_open_tokens=2 * engine.max_num_batched_tokens,
            dimensions=dimensions,
            activate=activate,
            priority=priority,
            cache_salt=cache_salt,
            deadline=exchange.deadline,
        ),
        exchange.caller,
    )
    exchange.began_pooling(pooled)
    return Pooled(await pooled.vectors(), pooled.prompt_tokens)


async def embed(
    step: Step[PreparedEmbeddings], body: bytes, client: Client
) -> tuple[EmbeddingRequest, Pooled]:
    """Serve any API's request for embeddings; return the decoded request and the vectors. Raises
    QuireError."""
    client.exchange.record.operation = "embeddings"
    preparing = prepare(step, body, client, admit=client.admit_open)
    del body  # it may be large, and the answer may take long
    prepared = await preparing
    wanted = prepared.request
    pooled = await client.unless_gone(
        pooled_vectors(
            prepared.inputs,
            client.services,
            client.exchange,
            dimensions=wanted.dimensions,
            activate=wanted.normalize,
            priority=wanted.priority,
            cache_salt=wanted.cache_salt or "",
        )
    )
    return wanted, pooled


class Scored(NamedTuple, Generic[_Made]):
    prepared: _Made
    scores: list[float]
    usage: PoolingUsage


async def score_pairs(step: Step[_Made], body: bytes, client: Client) -> Scored[_Made]:
    """Score how well the two texts of each pair match. A cross-encoder reads both together; with
    any other embedding model, the score is the cosine of their embeddings. Raises QuireError."""
    preparing = prepare(step, body, client, admit=client.admit_open)
    del body  # it may be large, and the answer may take long
    prepared = await preparing
    wanted = prepared.request
    across = prepared.num_firsts == 0
    pooled = await client.unless_gone(
        pooled_vectors(
            prepared.inputs,
            client.services,
            client.exchange,
            activate=wanted.use_activation if across else True,
            priority=wanted.priority,
        )
    )
    usage = PoolingUsage(pooled.prompt_tokens, pooled.prompt_tokens)
    if across:
        return Scored(prepared, [floats_of(vector)[0] for vector in pooled.vectors], usage)
    return Scored(prepared, await _cosines(pooled.vectors, prepared.num_firsts), usage)


async def _cosines(vectors: list[bytes], num_firsts: int) -> list[float]:
    """One pair at a time, then other streams: thousands of vectors take long to decode."""
    first = floats_of(vectors[0])
    scores = []
    for index, vector in enumerate(vectors[num_firsts:]):
        if num_firsts > 1:
            first = floats_of(vectors[index])
        scores.append(cosine(first, floats_of(vector)))
        await asyncio.sleep(0)
    return scores
