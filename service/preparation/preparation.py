"""Prepares requests: a body in, and what its route needs out, with any grammar compiled.

Quick requests are prepared on the event loop, all others in a process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import msgspec

from engine.messages import Ready
from service.constraint.trial import GrammarTrial
from service.preparation.forms import WriteForm, tried_constraint
from service.preparation.jobs import (
    Asked,
    Form,
    FormJob,
    Job,
    Limits,
    Noted,
    Prepared,
    PreparedGeneration,
)
from service.preparation.processes import PreparationProcesses
from service.preparation.steps import FORM
from service.preparation.work import Model, Step, Work, ignored_of
from service.tenants.caller import Caller

# Bodies up to this size are prepared on the event loop, if that is always fast.
IN_LOOP_BYTES = 4 * 1024
# Schemas with these keywords can be much more work than their size says: a few of their bytes apply
# to many others.
_COMBINING = (b'"$ref"', b'"allOf"', b'"anyOf"', b'"oneOf"')
_IN_LOOP_COMBINING_BYTES = 1024

_Result = TypeVar("_Result")
_Made = TypeVar("_Made", bound=Prepared)


class UnlessGone(Protocol):
    def __call__(self, work: Awaitable[_Result], /) -> Awaitable[_Result]:
        """Return or raise what ``work`` does; raise ClientGoneError if the client leaves first."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What preparation needs to know of a request besides its body. ``caller``: whose it is.
    ``admit`` returns the loaded model, or raises QuireError if the request is not accepted now."""

    request_id: str
    arrival_time: float
    caller: Caller
    admit: Callable[[], Ready]
    unless_gone: UnlessGone

    @property
    def owner(self) -> str:
        """For fair turns."""
        return self.caller.owner


class Preparation:
    """``model``: for preparing requests on the event loop."""

    def __init__(
        self,
        model: Model,
        limits: Limits,
        processes: PreparationProcesses,
        grammar_trial: GrammarTrial,
    ) -> None:
        self.model = model
        self._renders_here = model.checkpoint.has_own_template
        self._tokenizes_here = model.checkpoint.tokenizer.is_cheap
        self._limits = limits
        self._processes = processes
        self._grammar_trial = grammar_trial

    async def prepare(
        self,
        step: Step[_Made],
        body: bytes,
        context: RequestContext,
        noted: Noted,
        **fields: Any,
    ) -> _Made:
        """Run a step on a body. Small bodies are decoded before the request is admitted, so that
        its record has its model; nothing else is. ``fields`` are additional fields of the job.

        Raises QuireError.
        """
        request, limits = None, self._limits.allowed(context.caller)
        if step.decode is not None and len(body) <= IN_LOOP_BYTES:
            request = step.read(body, limits, noted)
        job = step.job(
            step=step.name,
            body=body,
            limits=limits,
            engine=context.admit(),
            request_id=context.request_id,
            arrival_time=context.arrival_time,
            **fields,
        )
        if self.is_quick(step, job.size):
            made = step.finish(request, Work(job, noted, self.model))
        else:
            running = self._processes.run(job, noted, context.owner)
            made = cast(_Made, await context.unless_gone(running))
        if isinstance(made, PreparedGeneration) and made.asked is not None:
            return cast(_Made, await self._constrained(made, made.asked, job, context, noted))
        return made

    def is_quick(self, step: Step[Any], size: int) -> bool:
        """True if the event loop can do a job of ``size`` bytes: it is small and uses no template
        but our own and no tokenizer that may be costly."""
        renders = self._renders_here or not step.uses_template
        tokenizes = self._tokenizes_here or not step.uses_tokenizer
        return size <= IN_LOOP_BYTES and renders and tokenizes

    async def _constrained(
        self,
        made: PreparedGeneration,
        asked: Asked,
        job: Job,
        context: RequestContext,
        noted: Noted,
    ) -> PreparedGeneration:
        """Return the generation with its constraint, compiled; note what is not enforced."""
        write = partial(self._write, asked, job.engine, context.owner)
        constraint, freed = await context.unless_gone(
            tried_constraint(asked, write, self._grammar_trial, context.owner)
        )
        ignored_of(self._limits, noted).add(*freed)
        generation = made.generation
        if constraint is not None:
            params = msgspec.structs.replace(generation.params, constraint=constraint)
            generation = dataclasses.replace(generation, params=params)
        return msgspec.structs.replace(made, generation=generation, asked=None)

    async def _write(self, asked: Asked, engine: Ready, owner: str, what: WriteForm) -> Form:
        job = FormJob(
            step=FORM.name,
            body=b"",
            asked=asked,
            limits=self._limits,
            engine=engine,
            lark=what.lark,
            exact=what.exact,
            eased=what.eased,
            parts=what.parts,
        )
        if self.is_quick(FORM, job.size) and not _combines_much(asked.request):
            return FORM.perform(Work(job, Noted(), self.model))
        form = await self._processes.run(job, Noted(), owner)
        assert isinstance(form, Form)
        return form

    async def warm_up(self) -> None:
        """If every conversation or text goes through a process, start one, so that the first client
        does not wait for it."""
        if not (self._renders_here and self._tokenizes_here):
            await self._processes.warm_up()

    async def close(self) -> None:
        await self._grammar_trial.close()
        await self._processes.close()


def _combines_much(request: bytes) -> bool:
    """``request``: a ConstraintRequest as JSON, in which keywords have no escapes."""
    return len(request) > _IN_LOOP_COMBINING_BYTES and any(map(request.__contains__, _COMBINING))
