"""Outputs that other servers' conformance suites hold, read as they are meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import (
    Opening,
    OutputFormat,
    detect_format,
    named_format,
    read_response_template,
)
from tests.service.output.parsing import cut, parse, summary

DSML = "｜DSML｜"


def form_of(name: str) -> OutputFormat:
    shipped = named_format("tool_calls", name)
    think = None if shipped.channels else detect_format("<think>").reasoning
    return OutputFormat(think, shipped.calls, shipped.channels, shipped.ignored)


def read(
    text: str,
    form: OutputFormat,
    schemas: dict[str, Any] | None = None,
    opening: Opening = Opening.TEXT,
) -> tuple[str, str, list[tuple[str, Any]]]:
    """Reasoning, text and calls; the arguments of a call that is not complete are their text."""
    options: dict[str, Any] = {"schemas": schemas or {}, "opening": opening}
    whole = summary(parse([text], form, **options))
    for pieces in (list(text), cut(text, [*range(0, 5000, 7)])):
        assert summary(parse(pieces, form, **options)) == whole
    said = {"reasoning": "", "text": ""}
    calls: list[tuple[str, Any]] = []
    for kind, *values in whole:
        match kind:
            case "call":
                calls.append((values[1], ""))
            case "arguments":
                calls[-1] = (calls[-1][0], values[0])
            case "end":
                calls[-1] = (calls[-1][0], json.loads(calls[-1][1]))
            case _:
                said[kind] += values[0]
    return said["reasoning"], said["text"], calls


def typed(tool: str, **types: str) -> dict[str, Any]:
    return {tool: {"type": "object", "properties": {k: {"type": v} for k, v in types.items()}}}


@pytest.mark.parametrize(
    ("family", "text", "calls"),
    [
        pytest.param(
            "qwen3_coder",
            "<tool_call>\n<function=get_current_weather>\n<parameter=city>\nDallas\n"
            "<parameter=state>\nTX\n</parameter>\n<parameter=unit>\nfahrenheit\n</parameter>\n"
            "</function>\n</tool_call>",
            [("get_current_weather", {"city": "Dallas", "state": "TX", "unit": "fahrenheit"})],
            id="a value without its closing tag ends at the next argument",
        ),
        pytest.param(
            "qwen3_coder",
            "<tool_call>\n<function=a>\n<parameter=x>\n1\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=b>\n<parameter=y>\n2\n</tool_call>\nDone.",
            [("a", {"x": "1"}), ("b", {"y": "2"})],
            id="a value without its closing tag ends where the call does",
        ),
        pytest.param(
            "glm45",
            "<tool_call>get_weather\n<arg_key>location</arg_key></tool_call>"
            "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>tacos</arg_value>\n"
            "</tool_call>",
            [("get_weather", "{}"), ("search", {"query": "tacos"})],  # the first is not complete
            id="a key without a value swallows no call",
        ),
        pytest.param(
            "glm45",
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
            "<arg_key>when</arg_key>\n<arg_key>days</arg_key><arg_value>3</arg_value>"
            "<arg_key>unit</arg_key></tool_call>",
            [("get_weather", '{"city": "Oslo", "days": 3}')],
            id="nor another argument",
        ),
        pytest.param(
            "deepseek_v32",
            f'<{DSML}function_calls><{DSML}invoke name="edit">'
            f'<{DSML}parameter name="expr" string="true">a<b>'
            f'<{DSML}parameter name="date" string="true">tomorrow</{DSML}parameter>'
            f"</{DSML}invoke></{DSML}function_calls>",
            [("edit", {"expr": "a<b>", "date": "tomorrow"})],
            id="the same where tags have attributes",
        ),
        pytest.param(
            "lfm2",
            "<|tool_call_start|>[bash(command='sed -n '360,450p' "
            "/testbed/sympy/matrices/common.py')]<|tool_call_end|>",
            [("bash", {"command": "sed -n '360,450p' /testbed/sympy/matrices/common.py"})],
            id="quotes inside quotes",
        ),
        pytest.param(
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.bad:0 "
            '<|tool_call_argument_begin|>{"city": "Beijing"<|tool_call_end|><|tool_call_begin|>'
            'functions.good:1 <|tool_call_argument_begin|>{"city": "Shanghai"}<|tool_call_end|>'
            "<|tool_calls_section_end|>",
            [("bad", '{"city": "Beijing"'), ("good", {"city": "Shanghai"})],
            id="arguments that are not closed end at the call's tag",
        ),
        pytest.param(
            "hermes",
            '<tool_call>{"name": "a", "arguments": {"x": "y}}</tool_call>\n'
            '<tool_call>{"name": "b", "arguments": {"z": "w"}}</tool_call>',
            [("a", '{"x": "y}}'), ("b", {"z": "w"})],
            id="and so does a string that is not closed",
        ),
        pytest.param(
            "hermes",
            '<tool_call>{"name": "a", "arguments": {"x": "</tool_call> and <tool_call>"}}'
            "</tool_call>",
            [("a", {"x": "</tool_call> and <tool_call>"})],
            id="but a string may be about tags",
        ),
        pytest.param(
            "mistral_v3",
            '[TOOL_CALLS][{"name": "a", "arguments": {"x": 1}, {"name": "b", "arguments": {}}, '
            '{"name": , "arguments": {}}, {"name": "c", "arguments": {"y": "1"}}]',
            [("a", {"x": 1}), ("b", {}), ("c", {"y": "1"})],
            id="a malformed call hides none behind it in a list",
        ),
        pytest.param(
            "hermes",
            '<tool_call>{"name": "a", "arguments": {city: Oslo}}</tool_call>',
            [("a", "{city: Oslo}")],
            id="what is not JSON is shown as it is",
        ),
        pytest.param(
            "hermes",
            '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>',
            [("a", '{"x": NaN}')],
            id="nor is what only Python takes for JSON",
        ),
        pytest.param(
            "deepseek_v4",
            f'<{DSML}tool_calls>\n<{DSML}invoke name="get_favorite_tourist_spot">\n'
            f'<{DSML}parameter name="city" string="true">SF</{DSML}parameter>\n'
            f'</{DSML}invoke>\n<{DSML}invoke name="submit"/>\n</{DSML}tool_calls>',
            [("get_favorite_tourist_spot", {"city": "SF"}), ("submit", {})],
            id="a tag that closes itself",
        ),
        pytest.param(
            "minimax_m2",
            '<invoke name="submit"/>',
            [("submit", {})],
            id="the same without the tag around it",
        ),
        pytest.param(
            "deepseek_v4",
            f'<{DSML}invoke name="terminal">\n<{DSML}parameter name="command" string="true">'
            f"echo hi</{DSML}parameter>\n</{DSML}invoke>\n",
            [("terminal", {"command": "echo hi"})],
            id="a call without the tag around it",
        ),
        pytest.param(
            "minicpm5",
            '<function name="html"><param name="markup"><![CDATA[<a href="/x">hi</a> </param>]]>'
            "</param></function>",
            [("html", {"markup": '<a href="/x">hi</a> </param>'})],
            id="CDATA",
        ),
        pytest.param(
            "granite",
            '<tool_call> [{"name": "get_weather", "arguments": {"city": "Tokyo"}}]',
            [("get_weather", {"city": "Tokyo"})],
            id="the tag of Granite 3.1",
        ),
        pytest.param(
            "lfm2",
            '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Berlin"}}]'
            "<|tool_call_end|>",
            [("get_weather", {"city": "Berlin"})],
            id="JSON where Python is usual",
        ),
        *(
            pytest.param(
                family,
                f"<{tag}><function=edit>\n"
                '<parameter=newString>def foo(arg = "15"):\n    pass\n</parameter>\n'
                f"</function></{tag}>",
                [("edit", {"newString": 'def foo(arg = "15"):\n    pass\n'})],
                id=f"values that stand verbatim-{family}",
            )
            for family, tag in (("seed_oss", "seed:tool_call"), ("mimo", "tool_call"))
        ),
        pytest.param(
            "cohere_command3",
            '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "tool_a", '
            '"parameters": {"x": "1"}}\n]<|END_ACTION|>',
            [("tool_a", {"x": "1"})],
            id="what a response_template with a transform says is left to detection",
        ),
        pytest.param(
            "gemma4",
            '<|tool_call>:get_weather{location:<|"|>London<|"|>}<tool_call|>',
            [("get_weather", {"location": "London"})],
            id="a call whose first word is missing",
        ),
    ],
)
def test_calls(family: str, text: str, calls: list[tuple[str, Any]]) -> None:
    assert read(text, form_of(family))[2] == calls


@pytest.mark.parametrize("family", ["qwen3_coder", "step3p5"])
def test_a_function_without_the_tag_around_it_is_a_call_of_a_known_tool(family: str) -> None:
    text = (
        "<function=special_function>\n<parameter=arg1>\n1\n</parameter>\n</function>\n</tool_call>"
    )
    known = typed("special_function", arg1="integer")
    assert read(text, form_of(family), known) == ("", "", [("special_function", {"arg1": 1})])
    about = "Write <function=NAME>, then its parameters."
    assert read(about, form_of(family), known) == ("", about, [])


@pytest.mark.parametrize(
    ("family", "text", "declared", "value"),
    [
        (
            "gemma4",
            "<|tool_call>call:f{value:12345}<tool_call|>",
            "string",
            "12345",
        ),
        ("gemma4", "<|tool_call>call:f{value:12345}<tool_call|>", "integer", 12345),
        *(
            (
                "qwen3_coder",
                f"<tool_call>\n<function=f>\n<parameter=value>\n{written}\n</parameter>\n"
                "</function>\n</tool_call>",
                declared,
                value,
            )
            for written, declared, value in (
                ("3.14", "float", 3.14),
                ("3", "int", 3),
                ("true", "bool", True),
                ("5", "str", "5"),
                ('{"a": 1}', "dict", {"a": 1}),
                ("[1]", "list", [1]),
            )
        ),
    ],
)
def test_bare_values_are_of_the_type_that_the_schema_names(
    family: str, text: str, declared: str, value: Any
) -> None:
    assert read(text, form_of(family), typed("f", value=declared))[2] == [("f", {"value": value})]


CALL = '<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>'


@pytest.mark.parametrize(
    ("family", "text", "said"),
    [
        ("hermes", f"Before. {CALL} After the call.", "Before.  After the call."),
        (
            "hermes",
            f"Prefix text:\n{CALL}Now calling next:{CALL}",
            "Prefix text:\nNow calling next:",
        ),
        ("hermes", f"<think>Hm.</think>\n\nHi.\n{CALL}\n", "Hi."),
        ("hermes", "Hi <think>Hm.</think> there", "Hi  there"),
        (
            "hermes",
            "Hi.</think>Content here.</think>More content.",
            "Hi.Content here.More content.",
        ),
        ("hermes", "<tool_call></tool_call>Hello.", "Hello."),
        ("hermes", "Hello.</tool_call>", "Hello."),
        (
            "openai",
            "<|channel|>commentary<|message|>Let me look that up.<|end|><|start|>assistant"
            "<|channel|>final<|message|>The answer is 42.<|return|>",
            "Let me look that up.\nThe answer is 42.",
        ),
    ],
)
def test_text_keeps_its_own_white_space_and_no_tag_that_is_out_of_place(
    family: str, text: str, said: str
) -> None:
    assert read(text, form_of(family))[1] == said


@pytest.mark.parametrize(
    ("family", "text", "said"),
    [
        ("gemma4", "Hello, world!\nWhat's up?<channel|>", "Hello, world!\nWhat's up?"),
        ("minimax_m3", "</mm:think>Hello", "Hello"),
    ],
)
def test_a_tag_that_closes_no_reasoning_is_dropped(family: str, text: str, said: str) -> None:
    form = OutputFormat(named_format("reasoning", family).reasoning)
    assert read(text, form) == ("", said, [])


def test_reasoning_that_the_prompt_opened_may_be_opened_again() -> None:
    form = detect_format("<think>")
    assert read("<think>Hm.</think>Hi", form, opening=Opening.REASONING) == ("Hm.", "Hi", [])


TOOL = {"open": "<tool>", "close": "</tool>", "content": "json"}
THOUGHT = {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"}


@pytest.mark.parametrize(
    "fields",
    [
        {
            "tool_calls": {
                **TOOL,
                "transform": {"name": "{content.name}", "arguments": "{content.args}"},
            }
        },
        {"thinking": THOUGHT, "tool_calls": {**TOOL, "transform": "{content.function}"}},
        {"content": {"open_pattern": "<(?P<x>.)>"}},
        {"content": {"content": "json"}},
        {"tool_plan": {"open": "<plan>", "close": "</plan>"}},
    ],
)
def test_a_response_template_that_says_more_is_left_to_detection(fields: dict[str, Any]) -> None:
    assert read_response_template({"fields": fields}) is None


@pytest.mark.parametrize("transform", ["{content}", {"type": "function", "function": "{content}"}])
def test_a_response_template_whose_transform_changes_nothing_is_followed(transform: Any) -> None:
    content = {"open": "<|START_TEXT|>", "close": ["<|END_TEXT|>", "<|END|>"]}
    fields = {"content": content, "tool_calls": {**TOOL, "transform": transform}}
    form = read_response_template({"fields": fields})
    assert form is not None
    text = '<|START_TEXT|>Hi.<|END_TEXT|><tool>{"name": "f", "arguments": {"a": 1}}</tool><|END|>'
    assert read(text, form) == ("", "Hi.", [("f", {"a": 1})])
