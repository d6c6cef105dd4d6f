"""Converts a request's body to a running generation, or to whatever else its route needs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from service.generation.request import Generation
from service.preparation.forms import WriteForm, tried_constraint
from service.preparation.jobs import (
    Asked,
    Form,
    FormJob,
    Limits,
    Noted,
    Prepared,
    PreparedGeneration,
)
from service.preparation.processes import IN_LOOP_BYTES
from service.preparation.steps import FORM
from service.preparation.work import Step, Work
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.services import Services

_Made = TypeVar("_Made", bound=Prepared)


def limits_of(services: Services) -> Limits:
    settings = services.settings
    return Limits(
        names=services.names,
        max_choices=settings.max_choices,
        refuse_unknown=settings.unknown_fields == "refuse",
    )


async def prepare(
    step: Step[_Made],
    body: bytes,
    client: Client,
    *,
    admit: Callable[[], None] | None = None,
    **fields: Any,
) -> _Made:
    """Run a step on a body: quick ones here, all others in a preparation process. ``admit`` is
    called before any work; ``fields`` are additional fields of the job.

    Raises QuireError.
    """
    services = client.services
    limits, noted = limits_of(services), Noted()
    request = None
    try:
        if step.decode is not None and len(body) <= IN_LOOP_BYTES:
            request = step.read(body, limits, noted)
        if admit is not None:
            admit()
        record = client.exchange.record
        job = step.job(
            step=step.name,
            body=body,
            limits=limits,
            engine=services.engine,
            request_id=record.request_id,
            arrival_time=record.received_time,
            **fields,
        )
        if services.preparation.is_quick(job):
            return step.finish(request, Work(job, noted, services.preparation.model))
        running = services.preparation.run(job, noted, client.owner)
        return cast(_Made, await client.unless_gone(running))
    finally:
        _note(noted, client.exchange)


def _note(noted: Noted, exchange: Exchange) -> None:
    record = exchange.record
    record.model = noted.model or record.model
    record.stream = noted.stream or record.stream
    record.client_request_id = record.client_request_id or noted.client_request_id
    record.prompt_tokens = noted.prompt_tokens or record.prompt_tokens
    record.intervals += noted.intervals
    record.prepared_time = time.monotonic()
    exchange.ignored.add(*noted.ignored)
    exchange.ignored.meant |= noted.meant


async def start(prepared: PreparedGeneration, client: Client) -> Generation:
    """Start the generation, constraining its output as requested. Constraints that are not enforced
    are reported.

    Raises QuireError, in which case nothing is running.
    """
    services, wanted = client.services, prepared.generation
    if prepared.asked is not None:
        write = partial(_write, prepared.asked, client)
        constraint, freed = await client.unless_gone(
            tried_constraint(prepared.asked, write, services.grammar_trial, client.owner)
        )
        client.exchange.ignored.add(*freed)
        if constraint is not None:
            params = msgspec.structs.replace(wanted.params, constraint=constraint)
            wanted = dataclasses.replace(wanted, params=params)
    generation = await services.generator.start(wanted, client.exchange.caller)
    client.exchange.began(generation)
    return generation


async def _write(asked: Asked, client: Client, what: WriteForm) -> Form:
    preparation, noted = client.services.preparation, Noted()
    job = FormJob(
        step=FORM.name,
        body=b"",
        asked=asked,
        limits=limits_of(client.services),
        engine=client.services.engine,
        lark=what.lark,
        exact=what.exact,
        eased=what.eased,
        parts=what.parts,
    )
    if preparation.is_quick(job):
        return FORM.perform(Work(job, noted, preparation.model))
    form = await preparation.run(job, noted, client.owner)
    assert isinstance(form, Form)
    return form
