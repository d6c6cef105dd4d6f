"""Converts a request's body to a running generation, or to whatever else its route needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from engine.messages import Ready
from service.errors import QuireError
from service.generation.request import Generation
from service.preparation.jobs import Noted, Prepared, PreparedGeneration
from service.preparation.preparation import RequestContext
from service.preparation.work import Step
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.metering import tokens_of
from service.wire.decode import named_model

_Made = TypeVar("_Made", bound=Prepared)


async def prepare(
    step: Step[_Made],
    body: bytes,
    client: Client,
    *,
    admit: Callable[[], Ready] | None = None,
    **fields: Any,
) -> _Made:
    """Prepare a request, and note in its record what is known of it, even if it is rejected.
    ``admit``: one of the client's; by default, any request is accepted while a model is loaded.
    ``fields`` are additional fields of the job.

    Raises QuireError.
    """
    exchange, noted = client.exchange, Noted()
    exchange.record.preparing = noted
    context = RequestContext(
        request_id=exchange.record.request_id,
        arrival_time=exchange.record.received_time,
        caller=exchange.caller,
        admit=admit or client.loaded_model,
        unless_gone=client.unless_gone,
    )
    try:
        return await client.services.preparation.prepare(step, body, context, noted, **fields)
    except QuireError:
        if not noted.model and (named := named_model(body)) in client.limits.names:
            noted.model = named or ""
        raise
    finally:
        _note(noted, exchange)


def _note(noted: Noted, exchange: Exchange) -> None:
    record, now = exchange.record, time.monotonic()
    record.preparing = None
    noted.enter(None, now)  # a killed or abandoned process has reported no end
    record.model = noted.model or record.model
    record.stream = noted.stream or record.stream
    record.client_request_id = record.client_request_id or noted.client_request_id
    record.prompt_tokens = noted.prompt_tokens or record.prompt_tokens
    record.intervals += noted.intervals
    record.prepared_time = now
    exchange.ignored.add(*noted.ignored)
    exchange.ignored.meant |= noted.meant


async def start(prepared: PreparedGeneration, client: Client) -> Generation:
    """Start a prepared generation. Raises QuireError, in which case nothing is running."""
    generator, exchange = client.services.generator, client.exchange
    exchange.check_cancelled()
    exchange.count(tokens_of(prepared.generation))
    exchange.describe(prepared.generation)
    generation = await generator.start(prepared.generation, exchange.caller, exchange.deadline)
    exchange.began(generation)
    return generation
