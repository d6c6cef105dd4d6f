"""What a request asks of its output becomes grammars that allow just that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.checkpoint.checkpoint import Checkpoint
from service.constraint.request import (
    AnyJsonObject,
    ConstraintRequest,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    ToolShape,
)
from service.errors import InvalidRequestError
from service.formats import OutputFormat, ReasoningTags, ToolCallTags
from service.preparation.forms import WriteForm, asked_of, form_of, write_form
from service.preparation.jobs import Form, FormJob, Noted
from tests.service.constraint.grammars import accepts, token_id
from tests.service.preparation.prepared import LIMITS, engine, model

FORMAT = OutputFormat(
    ReasoningTags("<think>", "</think>"), ToolCallTags("<tool_call>", "</tool_call>")
)
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def written(request: ConstraintRequest, **what: Any) -> Form:
    asked = asked_of(request)
    assert asked is not None
    return write_form(asked, WriteForm(**what), FORMAT, token_id, Noted())


def call(name: str, arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


def test_a_free_output_has_no_form() -> None:
    assert asked_of(ConstraintRequest()) is None
    loose = ToolShape(name="f", parameters=NUMBER, param="tools.0")
    assert asked_of(ConstraintRequest(tools=(loose,))) is None


def test_a_gbnf_grammar_is_told_apart_and_replaced_by_its_translation() -> None:
    gbnf = Grammar(text='root ::= "a" | "b"', param="guided_grammar")
    asked = asked_of(ConstraintRequest(answer=gbnf))
    assert asked is not None
    assert (asked.gbnf, asked.gbnf_param) == (gbnf.text, "guided_grammar")
    form = written(ConstraintRequest(answer=gbnf), lark='start: "a" | "b"')
    assert accepts(form.constraint, "a")
    assert not accepts(form.constraint, "c")
    lark = Grammar(text='start: "a"', param="guided_grammar")
    other = asked_of(ConstraintRequest(answer=lark))
    assert other is not None
    assert other.gbnf is None


def test_a_plain_output_is_only_its_answer() -> None:
    request = ConstraintRequest(answer=OneOf(options=("yes", "no"), param="guided_choice"))
    thought = "<think>Hm.</think>yes"
    form = written(request)
    assert accepts(form.constraint, thought)
    assert form.answer is not None
    assert form.answer.param == "guided_choice"
    asked = asked_of(request, plain=True)
    assert asked is not None
    job = FormJob(step="form", body=b"", limits=LIMITS, engine=engine(), asked=asked)
    for constraint in (
        form.answer.constraint,
        form_of(job, model().checkpoint, Noted()).constraint,
    ):
        assert accepts(constraint, "yes")
        assert not accepts(constraint, thought)


def test_the_parts_are_the_tools_each_alone() -> None:
    tools = tuple(
        ToolShape(name=name, parameters=NUMBER, strict=True, param=f"tools.{name}")
        for name in ("f", "g")
    )
    request = ConstraintRequest(tools=tools, answer=AnyJsonObject(param="text"))
    assert written(request).parts == []
    parts = written(request, parts=True).parts
    assert [part.param for part in parts] == ["tools.f", "tools.g"]
    assert accepts(parts[0].constraint, call("f", {"n": 1}))
    for other in (call("g", {"n": 1}), call("f", {"n": "1"})):
        assert not accepts(parts[0].constraint, other)


def test_a_schema_that_nobody_called_strict_may_be_left_out_of_a_forced_call() -> None:
    tool = ToolShape(name="f", parameters=NUMBER, param="tools.0")
    request = ConstraintRequest(tools=(tool,), tool_choice="required")
    assert written(request).loose
    wrong = call("f", {"n": "1"})
    assert not accepts(written(request).constraint, wrong)
    assert accepts(written(request, exact=False).constraint, wrong)


def test_an_eased_form_asks_less_and_says_of_what() -> None:
    schema = {**NUMBER, "properties": {"n": {"type": "string", "pattern": "^x+$"}}}
    answer = JsonSchema(schema=schema, param="response_format")
    form = written(ConstraintRequest(answer=answer), eased=True)
    assert not accepts(form.constraint, '{"n": "a"}')
    [easier] = form.eased
    assert easier.left_out == ["response_format.properties.n.pattern"]
    assert accepts(easier.constraint, '{"n": "a"}')
    assert not accepts(easier.constraint, '{"n": 1}')
    strict = JsonSchema(schema=schema, param="response_format", strict=True)
    assert written(ConstraintRequest(answer=strict), eased=True).eased == []


def test_what_a_custom_tool_s_text_cannot_be_bound_to_is_freed_only_where_it_may_be() -> None:
    nested = Grammar(text='start: "(" start ")" | "x"', param="tools.0.format", syntax="lark")
    bound = ToolShape(
        name="c", param="tools.0.format", custom=True, input=nested, input_key="input"
    )
    other = ToolShape(
        name="d", param="tools.1.format", custom=True, input=Regex(pattern="[ab]+", param="r")
    )
    tools = (bound, other)
    with pytest.raises(InvalidRequestError) as refused:
        written(ConstraintRequest(tools=tools))
    assert refused.value.param == "tools.0.format"
    form = written(ConstraintRequest(tools=tools, may_free=True))
    assert form.freed == ["tools.0.format"]
    assert accepts(form.constraint, call("c", {"input": "anything"}))
    assert not accepts(form.constraint, call("d", {"input": "c"}))


def test_a_job_is_written_for_the_format_of_its_checkpoint() -> None:
    checkpoint: Checkpoint = model().checkpoint
    asked = asked_of(ConstraintRequest(answer=AnyJsonObject(param="text")))
    assert asked is not None
    job = FormJob(step="form", body=b"", limits=LIMITS, engine=engine(), asked=asked)
    output_format, token_ids = checkpoint.output_format, checkpoint.tokenizer.token_id
    by_hand = write_form(asked, WriteForm(), output_format, token_ids, Noted())
    assert form_of(job, checkpoint, Noted()) == by_hand
