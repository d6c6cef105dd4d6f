"""A conversation as templates take it, whatever API it came from."""

from __future__ import annotations

from typing import Any

import pytest

from service.conversation import Conversation, NamedTool, ToolDefinition, effort_of

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
