"""Grammars are tried in a separate process, in bounded time, and refused with their field."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.messages import Constraint
from service.constraint import trial as constraint_trial
from service.constraint.request import (
    AnswerShape,
    AnyJsonObject,
    ConstraintRequest,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    ToolShape,
)
from service.constraint.trial import GrammarTrial
from service.errors import HelperKilledError, InvalidRequestError
from service.formats import OutputFormat, ReasoningTags, ToolCallTags
from service.preparation.forms import WriteForm, asked_of, tried_constraint, write_form
from service.preparation.jobs import Form, Noted
from tests.engine.constraint.hostile import GRAMMARS
from tests.service.constraint.grammars import accepts, token_id
from tests.service.tiny_model import write_tiny_model

FORMAT = OutputFormat(
    ReasoningTags("<think>", "</think>"), ToolCallTags("<tool_call>", "</tool_call>")
)
WORD = Constraint(grammar='%llguidance {}\nstart: "yes" | "no"\n')
# It would compile for hours.
SLOW = Constraint(
    grammar="%llguidance {}\nstart: %json "
    + json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(12_000)}})
)
GBNF = 'root ::= "a" item+\nitem ::= [x-z] | "(" item ")"\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trial(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrammarTrial]:
    trial = GrammarTrial(write_tiny_model(tmp_path_factory.mktemp("trial") / "tiny"))
    yield trial
    await trial.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def asked(answer: AnswerShape, **fields: object) -> ConstraintRequest:
    return ConstraintRequest(answer=answer, **fields)  # type: ignore[arg-type]  # test's own


async def constrained(request: ConstraintRequest, trial: GrammarTrial) -> Constraint:
    form = asked_of(request)
    assert form is not None

    async def write(what: WriteForm) -> Form:
        return write_form(form, what, FORMAT, token_id, Noted())

    constraint = (await tried_constraint(form, write, trial)).constraint
    assert constraint is not None
    return constraint


async def test_a_sound_grammar_passes(trial: GrammarTrial) -> None:
    assert await trial.try_out(WORD) is None


async def test_a_verdict_is_remembered(
    trial: GrammarTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await trial.try_out(WORD) is None
    monkeypatch.setattr(constraint_trial, "TRIAL_SECONDS", 0.0)  # no process could answer in time
    assert await trial.try_out(WORD) is None


def strict(schema: dict[str, Any]) -> JsonSchema:
    return JsonSchema(schema=schema, param="f", strict=True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (JsonSchema(schema={"type": "strin"}, param="f"), "Invalid type"),
        (JsonSchema(schema={"$ref": "https://elsewhere.example/a"}, param="f"), "elsewhere"),
        (JsonSchema(schema={"type": "integer", "minimum": 3, "maximum": 1}, param="f"), "minimum"),
        (JsonSchema(schema={"enum": []}, param="f"), "Unsatisfiable"),
        (strict({"type": "string", "pattern": "(?=a)"}), "look-?around"),
        (strict({"oneOf": [{"type": "number"}, {"type": "integer"}]}), "oneOf"),
        (Regex(pattern="(", param="f"), "regex"),
        (Regex(pattern=r"(a)\1", param="f"), "backreferences"),
        (Grammar(text="start: missing\n", param="f"), "missing"),
        (Grammar(text="no start here", param="f"), "Expected"),
        (Grammar(text="start: a\na: b\nb: a\n", param="f"), "no text"),
        (Grammar(text="root ::= (", param="f"), "GBNF"),
    ],
)
async def test_an_unsound_one_is_the_request_s_own_error(
    trial: GrammarTrial, answer: AnswerShape, said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said) as refused:
        await constrained(asked(answer), trial)
    # A keyword at fault is named by its own path.
    paths = {"look-?around": "f.pattern", "elsewhere": "f.$ref"}
    assert refused.value.param == paths.get(said, "f")
    assert "\n" not in refused.value.message


async def test_a_reference_to_another_document_is_named_by_its_path(trial: GrammarTrial) -> None:
    schema = {"type": "object", "properties": {"p": {"$ref": "http://x/y"}}}
    tool = ToolShape(name="a", parameters=schema, strict=True, param="tools.0.parameters")
    free = ToolShape(name="a", parameters=schema, param="tools.0.parameters")
    for request, param in (
        (asked(JsonSchema(schema=schema, param="f")), "f"),
        (ConstraintRequest(tools=(tool,)), "tools.0.parameters"),
    ):
        with pytest.raises(
            InvalidRequestError, match="'http://x/y' leads to another document"
        ) as no:
            await constrained(request, trial)
        assert no.value.param == f"{param}.properties.p.$ref"
    await constrained(ConstraintRequest(tools=(free,), tool_choice="required"), trial)


async def test_the_tool_at_fault_is_named(trial: GrammarTrial) -> None:
    good = ToolShape(name="a", parameters={"type": "object"}, strict=True, param="tools.0")
    bad = ToolShape(
        name="b",
        parameters={"type": "object", "properties": {"x": {"type": "strin"}}},
        strict=True,
        param="tools.1.function.parameters",
    )
    request = ConstraintRequest(tools=(good, bad), answer=AnyJsonObject(param="response_format"))
    with pytest.raises(InvalidRequestError) as refused:
        await constrained(request, trial)
    assert refused.value.param == "tools.1.function.parameters"


async def test_a_loose_tool_with_an_unsound_schema_can_still_be_required(
    trial: GrammarTrial,
) -> None:
    tool = ToolShape(name="b", parameters={"properties": {"x": {"type": "strin"}}}, param="t")
    request = ConstraintRequest(tools=(tool,), tool_choice="required")
    constraint = await constrained(request, trial)
    said = '<tool_call>{"name": "b", "arguments": {"x": [1]}}</tool_call>'
    assert accepts(constraint, said)


async def test_llama_cpp_s_notation_is_understood(trial: GrammarTrial) -> None:
    constraint = await constrained(asked(Grammar(text=GBNF, param="g")), trial)
    assert accepts(constraint, "axz((y))")
    assert not accepts(constraint, "a(")


async def test_choices_are_taken_literally(trial: GrammarTrial) -> None:
    options = ('a"b', "c\\d", "e\nf", "g/h", "(i)", "ü", "")
    answer = OneOf(options=options, param="choice")
    constraint = await constrained(asked(answer, reasoning=False), trial)
    assert all(accepts(constraint, option) for option in options)
    assert not accepts(constraint, 'a"')


async def test_a_grammar_that_takes_too_long_is_refused_in_bounded_time(
    trial: GrammarTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await trial.try_out(WORD) is None  # a process is up
    monkeypatch.setattr(constraint_trial, "TRIAL_SECONDS", 0.3)
    async with asyncio.timeout(30):
        error = await trial.try_out(SLOW)
    assert error is not None
    assert "to compile" in error
    monkeypatch.undo()
    # The process ended with it; another takes its place.
    assert await trial.try_out(Constraint(grammar="%llguidance {}\nstart: /a+/\n")) is None


async def test_every_hostile_grammar_gets_its_verdict_and_the_event_loop_keeps_running(
    trial: GrammarTrial,
) -> None:
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before - 0.005)

    beating = asyncio.create_task(beat())
    begin = time.monotonic()
    for source in GRAMMARS.values():
        await trial.try_out(Constraint(grammar=source, row_items=300))
    beating.cancel()
    assert time.monotonic() - begin < len(GRAMMARS) * constraint_trial.TRIAL_SECONDS
    assert longest < 1.0  # compiled in the event loop's thread, some take hours
    assert await trial.try_out(WORD) is None


async def test_a_caller_that_stops_waiting_leaves_no_verdict_for_the_next(
    trial: GrammarTrial,
) -> None:
    waiting = asyncio.create_task(
        trial.try_out(Constraint(grammar="%llguidance {}\nstart: /b{1,9000}/\n"))
    )
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    bad = Constraint(grammar="%llguidance {}\nstart: /(/\n")
    assert await trial.try_out(bad) is not None
    assert await trial.try_out(Constraint(grammar="%llguidance {}\nstart: /c+/\n")) is None


async def test_closing_ends_the_processes(tmp_path: Path) -> None:
    trial = GrammarTrial(write_tiny_model(tmp_path / "tiny"))
    assert await trial.try_out(WORD) is None
    [pid] = [process.pid for process in trial._processes if process.pid is not None]
    await trial.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_grammar_whose_process_is_killed_from_outside_is_not_refused_as_too_large(
    trial: GrammarTrial,
) -> None:
    killed: set[int] = set()
    not_remembered = Constraint(grammar=SLOW.grammar + "\n")
    asking = asyncio.create_task(trial.try_out(not_remembered, "another"))
    while not asking.done():
        for pid in {process.pid for process in trial._processes if process.pid} - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        await asyncio.sleep(0.001)
    with pytest.raises(HelperKilledError, match="killed twice"):
        await asking
    assert await trial.try_out(WORD) is None
