"""What the routes for vectors and scores do the same: submit texts and wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.http.exchange import Exchange
from service.http.services import Services
from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest


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
