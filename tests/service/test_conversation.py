"""A conversation as templates take it, whatever API it came from."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from service.checkpoint.template import ChatTemplate, TemplateError
from service.conversation import (
    CallArguments,
    Conversation,
    NamedTool,
    ToolDefinition,
    effort_of,
    text_of,
)

SCHEMA = {"type": "object"}
TOOLS = (ToolDefinition(name="f", parameters=SCHEMA), ToolDefinition(name="g", description="d"))


@pytest.mark.parametrize("choice", ["auto", "required", NamedTool("f")])
def test_tools_are_in_the_prompt_if_they_may_be_called(choice: Any) -> None:
    talk = Conversation(messages=[], tools=TOOLS, tool_choice=choice)
    assert talk.template_tools() == [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "g", "description": "d"}},
    ]
    assert talk.tool_schemas() == {"f": SCHEMA, "g": None}


@pytest.mark.parametrize(
    "talk",
    [Conversation(messages=[]), Conversation(messages=[], tools=TOOLS, tool_choice="none")],
    ids=["no tools", "no calls"],
)
def test_tools_that_may_not_be_called_are_not_in_the_prompt(talk: Conversation) -> None:
    assert not talk.calls_tools
    assert talk.template_tools() is None
    assert talk.tool_schemas() is None


@pytest.mark.parametrize(
    ("thinking", "effort", "variables"),
    [
        (None, None, {}),
        (True, None, {"enable_thinking": True, "thinking": True}),
        (None, "none", {"enable_thinking": False, "thinking": False, "reasoning_effort": "none"}),
        (None, "low", {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}),
        (False, "low", {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}),
    ],
)
def test_effort_switches_thinking_unless_it_is_switched_itself(
    thinking: bool | None, effort: str | None, variables: dict[str, Any]
) -> None:
    talk = Conversation(messages=[], thinking=thinking, reasoning_effort=effort)
    assert talk.thinking_variables() == variables


@pytest.mark.parametrize(
    ("word", "level"),
    [
        *((None, None), ("", None), ("default", None), ("auto", None), ("disable", "none")),
        *(("NONE", "none"), ("High", "high"), ("no_think", "no_think"), ("Turbo", "Turbo")),
    ],
)
def test_the_efforts_of_other_vendors_clients_are_known(
    word: str | None, level: str | None
) -> None:
    assert effort_of(word) == level


ARGUMENTS = CallArguments({"a": 1, "text": "key"}, '{"a":1e0,"text":"key"}')


def test_arguments_keep_their_text_in_copies() -> None:
    for arguments in (ARGUMENTS, copy.copy(ARGUMENTS), copy.deepcopy([ARGUMENTS])[0]):
        assert arguments == {"a": 1, "text": "key"}
        assert text_of(arguments) == '{"a":1e0,"text":"key"}'
    assert text_of({"a": 1}) is None
    assert text_of("text") is None


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("{{ x is mapping }} {{ x is string }}", "True False"),
        ("{{ x | tojson }}", '{"a": 1, "text": "key"}'),
        ("{{ x }} {{ x | string }}", "{'a': 1, 'text': 'key'} {'a': 1, 'text': 'key'}"),
        ("{% for name, value in x.items() %}{{ name }}={{ value }};{% endfor %}", "a=1;text=key;"),
        ("{% for name, value in x | items %}{{ name }}={{ value }};{% endfor %}", "a=1;text=key;"),
        ("{{ x.text }} {{ x | length }} {{ dict(x) }}", "key 2 {'a': 1, 'text': 'key'}"),
        ("{{ x == {'a': 1, 'text': 'key'} }} {{ x | attr('text') is defined }}", "True False"),
    ],
    ids=["tests", "tojson", "as text", "items", "items filter", "a key", "equality"],
)
def test_a_template_takes_them_as_an_object(source: str, written: str) -> None:
    assert ChatTemplate(source).render([], variables={"x": ARGUMENTS}) == written
    assert ChatTemplate(source).render([], variables={"x": dict(ARGUMENTS)}) == written


@pytest.mark.parametrize(
    "source",
    ["{{ x._text }}", "{{ x | attr('_text') }}", "{{ '{0._text}'.format(x) }}", "{{ x['_text'] }}"],
    ids=["attribute", "filter", "format", "item"],
)
def test_the_sandbox_shows_a_template_no_more_of_them(source: str) -> None:
    assert ChatTemplate(source).render([], variables={"x": ARGUMENTS}) == ""


def test_a_template_cannot_change_them() -> None:
    with pytest.raises(TemplateError, match="forbidden"):
        ChatTemplate("{{ x.update({}) }}").render([], variables={"x": ARGUMENTS})
