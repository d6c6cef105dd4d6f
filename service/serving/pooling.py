"""What the routes for vectors and scores do the same: submit texts and wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest
from service.preparation.jobs import PreparedEmbeddings
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.services import Services


@dataclass(frozen=True, slots=True)
class Pooled:
    """``vectors``: of each input in order, little-endian float32."""

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
    """Raises QuireError."""
    engine = services.engine
    pooled = PooledTexts(
        services.link,
        PoolingRequest(
            request_id=exchange.record.request_id,
            inputs=inputs,
            arrival_time=exchange.record.received_time,
            # One step's worth runs while the next one's waits.
            most_open=2 * engine.max_num_seqs,
            most_open_tokens=2 * engine.max_num_batched_tokens,
            dimensions=dimensions,
            activate=activate,
            priority=priority,
            cache_salt=cache_salt,
        ),
        exchange.caller,
    )
    exchange.began_pooling(pooled)
    return Pooled(await pooled.vectors(), pooled.prompt_tokens)


async def embedded(prepared: PreparedEmbeddings, client: Client) -> Pooled:
    """The vectors that any API's request asks for. Raises QuireError."""
    wanted = prepared.request
    return await client.unless_gone(
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
