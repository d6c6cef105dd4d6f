"""The constraints on an output: written as grammars, then compiled before they go to the engine.

Grammars are written where requests are prepared (``form_of``); the API worker compiles them and
traces errors to the field at fault (``tried_constraint``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from engine.messages import Constraint
from service.checkpoint.checkpoint import Checkpoint
from service.constraint.build import (
    asks_anything,
    build_constraint,
    check_size,
    eased_requests,
    is_gbnf,
)
from service.constraint.flat import CannotFlattenError
from service.constraint.lark import TokenIds
from service.constraint.request import ConstraintRequest, Grammar, JsonSchema, ToolShape
from service.constraint.trial import GrammarTrial, TrialFailedError
from service.errors import InternalError, InvalidRequestError
from service.formats import PLAIN, OutputFormat
from service.preparation.jobs import Asked, EasedForm, Form, FormJob, Noted, PartForm
from service.schema_targets import outside_reference

_MOST_FREED = 8
# Tools whose grammars are compiled alone to find the one at fault.
_MOST_PARTS = 32
_MOST_PART_CHARS = 2 * 1024 * 1024

_request_decoder = msgspec.json.Decoder(ConstraintRequest)


class WriteForm(NamedTuple):
    """The fields of a FormJob that vary between jobs for the same request."""

    lark: str | None = None
    exact: bool = True
    eased: bool = False
    parts: bool = False


def asked_of(request: ConstraintRequest, *, plain: bool = False) -> Asked | None:
    """Return the output's constraints; None if there are none. Raises InvalidRequestError."""
    if not asks_anything(request):
        return None
    asked = Asked(request=msgspec.json.encode(request), plain=plain)
    answer = request.answer
    if not isinstance(answer, Grammar) or not is_gbnf(answer):
        return asked
    check_size(answer.text, answer.param)
    return msgspec.structs.replace(asked, gbnf=answer.text, gbnf_param=answer.param)


def form_of(job: FormJob, checkpoint: Checkpoint, noted: Noted) -> Form:
    """Write a job's grammars. Raises InvalidRequestError for what cannot be enforced."""
    output_format = PLAIN if job.asked.plain else checkpoint.output_format
    what = WriteForm(job.lark, job.exact, job.eased, job.parts)
    return write_form(job.asked, what, output_format, checkpoint.tokenizer.token_id, noted)


def write_form(
    asked: Asked, what: WriteForm, output_format: OutputFormat, token_ids: TokenIds, noted: Noted
) -> Form:
    """Write the grammars for ``form_of``."""
    request = _request_decoder.decode(asked.request)
    if what.lark is not None and isinstance(request.answer, Grammar):
        answer = Grammar(text=what.lark, param=request.answer.param, syntax="lark")
        request = msgspec.structs.replace(request, answer=answer)
    freed: list[str] = []
    while True:
        left_out: list[str] = []
        try:
            constraint = build_constraint(
                request, output_format, token_ids, exact=what.exact, left_out=left_out
            )
            break
        except InvalidRequestError as error:
            request = _freed(request, error)
            freed.append(error.param or "tools")
    return Form(
        noted=noted,
        constraint=constraint,
        answer=_alone(request),
        freed=freed,
        left_out=left_out,
        eased=_eased(request, output_format, token_ids, left_out) if what.eased else [],
        parts=_parts(request, output_format, token_ids) if what.parts else [],
        loose=any(not tool.strict for tool in request.tools),
    )


def _eased(
    request: ConstraintRequest, output_format: OutputFormat, token_ids: TokenIds, before: list[str]
) -> list[EasedForm]:
    found: list[EasedForm] = []
    for easier, paths in eased_requests(request):
        constraint = build_constraint(easier, output_format, token_ids)
        if constraint is not None:
            found.append(EasedForm(constraint, list(dict.fromkeys([*before, *paths]))))
    return found


def _freed(request: ConstraintRequest, error: InvalidRequestError) -> ConstraintRequest:
    """Return the request without the one grammar that cannot be enforced inside this model's calls;
    at most a few may be dropped.

    Raises ``error`` if that is not the cause.
    """
    bound = sum(tool.input is not None for tool in request.tools)
    unenforceable = isinstance(error.__cause__, CannotFlattenError)
    if not request.may_free or not unenforceable or bound > _MOST_FREED:
        raise error

    def free(tool: ToolShape) -> ToolShape:
        return msgspec.structs.replace(tool, input=None) if tool.param == error.param else tool

    return msgspec.structs.replace(request, tools=tuple(map(free, request.tools)))


def _alone(request: ConstraintRequest) -> PartForm | None:
    """Return the answer's grammar alone: after reasoning, or as an alternative to calls, a grammar
    that matches no text would only be noticed when it is too late."""
    if request.answer is None:
        return None
    alone = build_constraint(ConstraintRequest(answer=request.answer), PLAIN, _no_tokens)
    return None if alone is None else PartForm(request.answer.param, alone)


def _no_tokens(_: str) -> None:
    return None


def _parts(
    request: ConstraintRequest, output_format: OutputFormat, token_ids: TokenIds
) -> list[PartForm]:
    parts: list[PartForm] = []
    size = 0
    for tool in request.tools[:_MOST_PARTS]:
        alone = ConstraintRequest(tools=(tool,), tool_choice="required")
        constraint = build_constraint(alone, output_format, token_ids)
        if constraint is not None:
            size += len(constraint.grammar)
            if size > _MOST_PART_CHARS:
                break
            parts.append(PartForm(tool.param, constraint))
    return parts


class Formed(NamedTuple):
    """``freed``: fields, and parts of them, that are not enforced."""

    constraint: Constraint | None
    freed: list[str]


async def tried_constraint(
    asked: Asked,
    write: Callable[[WriteForm], Awaitable[Form]],
    trial: GrammarTrial,
    owner: str = "",
) -> Formed:
    """Return the constraint for the engine. ``write`` writes the grammars; ``owner``: who waits for
    their compilation.

    Raises InvalidRequestError, naming the field, for what cannot be enforced or compiled within the
    limits; OverloadedError when too many are waiting; InternalError when grammars cannot be
    compiled.
    """
    try:
        lark = await _in_lark(asked, trial, owner)
        form = await write(WriteForm(lark))
        if form.constraint is None:
            return Formed(None, form.freed)
        error = await trial.try_out(form.constraint, owner)
        if error is None and form.answer is not None:
            error = await trial.try_out(form.answer.constraint, owner)
        if error is None:
            return Formed(form.constraint, [*form.freed, *form.left_out])
        for easier in (await write(WriteForm(lark, eased=True))).eased:
            if await trial.try_out(easier.constraint, owner) is None:
                return Formed(easier.constraint, [*form.freed, *easier.left_out])
        if form.loose:
            # A schema that is not marked strict must not make a call impossible.
            loose = (await write(WriteForm(lark, exact=False))).constraint
            if (
                loose is not None
                and loose != form.constraint
                and not await trial.try_out(loose, owner)
            ):
                return Formed(loose, form.freed)
        param = await _culprit(form, lark, write, trial, owner)
        raise InvalidRequestError(
            f"The output cannot be constrained as requested: {_readable(error)}",
            param=_path_within(asked, param) if "leads to another document" in error else param,
        )
    except TrialFailedError as failure:
        raise InternalError(f"{failure}.") from failure


async def _in_lark(asked: Asked, trial: GrammarTrial, owner: str) -> str | None:
    """Return the request's GBNF grammar, if any, in Lark's notation."""
    if asked.gbnf is None:
        return None
    text, error = await trial.to_lark(asked.gbnf, owner)
    if error is not None:
        raise InvalidRequestError(
            f"The grammar is not valid GBNF: {_readable(error)}", param=asked.gbnf_param
        )
    return text


async def _culprit(
    form: Form,
    lark: str | None,
    write: Callable[[WriteForm], Awaitable[Form]],
    trial: GrammarTrial,
    owner: str,
) -> str:
    """Return the field whose grammar fails even on its own."""
    answer = form.answer
    if answer is not None and await trial.try_out(answer.constraint, owner) is not None:
        return answer.param
    for part in (await write(WriteForm(lark, parts=True))).parts:
        if await trial.try_out(part.constraint, owner) is not None:
            return part.param
    return answer.param if answer is not None else "tools"


def _path_within(asked: Asked, param: str) -> str:
    """Return the path to the reference that leads out of the schema in the field ``param``."""
    request = _request_decoder.decode(asked.request)
    schemas: list[Any] = [tool.parameters for tool in request.tools if tool.param == param]
    if isinstance(request.answer, JsonSchema) and request.answer.param == param:
        schemas.append(request.answer.schema)
    paths = filter(None, map(outside_reference, schemas))
    return next((f"{param}.{path}" for path in paths), param)


def _readable(error: str) -> str:
    if "circular references with sibling keys" in error:
        return "keywords next to a recursive '$ref' cannot be enforced."
    return f"{error.rstrip('.')}."
