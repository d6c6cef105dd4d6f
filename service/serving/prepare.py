"""From a request's body to a running generation, or to what else its route needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from service.generation.request import Generation
from service.preparation.forms import WriteForm, constraint_of
from service.preparation.jobs import (
    Form,
    FormJob,
    Job,
    Limits,
    Noted,
    Prepared,
    PreparedGeneration,
)
from service.preparation.processes import IN_LOOP_BYTES
from service.preparation.steps import STEPS, Work, perform
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.services import Services

P = TypeVar("P", bound=Prepared)


def limits_of(services: Services) -> Limits:
    settings = services.settings
    return Limits(
        names=services.names,
        max_choices=settings.max_choices,
        refuse_unknown=settings.unknown_fields == "refuse",
    )


async def prepare(
    kind: type[Job],
    result: type[P],
    body: bytes,
    client: Client,
    *,
    admit: Callable[[], None] | None = None,
    **fields: Any,
) -> P:
    """What the step of ``kind`` makes of a body: here what is quick, everything else in a
    preparation process. ``admit`` is asked before there is work; ``fields`` are the job's own.

    Raises QuireError.
    """
    services = client.services
    limits, noted = limits_of(services), Noted()
    step = STEPS[kind]
    request = None
    try:
        if step.read is not None and len(body) <= IN_LOOP_BYTES:
            request = step.read(body, limits, noted)
        if admit is not None:
            admit()
        record = client.exchange.record
        job = kind(
            body=body,
            limits=limits,
            engine=services.engine,
            request_id=record.request_id,
            arrival_time=record.received_time,
            **fields,
        )
        if request is not None and services.preparation.is_quick(job):
            made = step.finish(request, Work(job, noted, services.preparation.model))
        else:
            made = await prepared_elsewhere(job, noted, client)
    finally:
        _note(noted, client.exchange)
    assert isinstance(made, result)
    return made


async def prepared_elsewhere(job: Job, noted: Noted, client: Client) -> Prepared:
    """In a preparation process. Raises QuireError."""
    running = client.services.preparation.run(job, noted, client.owner)
    return await client.unless_gone(running)


def _note(noted: Noted, exchange: Exchange) -> None:
    record = exchange.record
    record.model = noted.model or record.model
    record.stream = noted.stream or record.stream
    record.client_request_id = record.client_request_id or noted.client_request_id
    exchange.ignored.add(*noted.ignored)
    exchange.ignored.meant |= noted.meant


async def start(prepared: PreparedGeneration, client: Client) -> Generation:
    """The running generation, its output bound to the form that is asked for. What of the form
    is not enforced is reported.

    Raises QuireError; nothing runs then.
    """
    services, wanted = client.services, prepared.generation
    if prepared.asked is not None:
        asked = prepared.asked
        job = FormJob(body=b"", asked=asked, limits=limits_of(services), engine=services.engine)

        async def write(what: WriteForm) -> Form:
            form_job = msgspec.structs.replace(
                job, lark=what.lark, exact=what.exact, eased=what.eased, parts=what.parts
            )
            noted = Noted()
            if services.preparation.is_quick(form_job):
                form = perform(Work(form_job, noted, services.preparation.model))
            else:
                form = await services.preparation.run(form_job, noted, client.owner)
            assert isinstance(form, Form)
            return form

        constraint, freed = await client.unless_gone(
            constraint_of(asked, write, services.grammar_trial, client.owner)
        )
        client.exchange.ignored.add(*freed)
        if constraint is not None:
            params = msgspec.structs.replace(wanted.params, constraint=constraint)
            wanted = dataclasses.replace(wanted, params=params)
    generation = services.generator.start(wanted, client.exchange.caller)
    client.exchange.began(generation)
    return generation
