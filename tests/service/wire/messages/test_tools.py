"""Anthropic's tools: which are the client's own, what their calls must match, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service.conversation import NamedTool
from service.errors import InvalidRequestError
from service.wire.decode import Ignored
from service.wire.messages.tools import (
    InputTool,
    InputToolChoice,
    check_input_tools,
    definitions_of,
    shapes_of,
)

TOOL = {"name": "f", "input_schema": {"type": "object"}}
HOSTED = {"type": "web_search_20250305", "name": "web_search"}


def tools(*given: dict[str, Any]) -> list[InputTool]:
    return msgspec.convert(given, list[InputTool])


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, NamedTool("f")),
    ],
)
def test_every_choice_of_tools_has_its_meaning(asked: Any, choice: Any) -> None:
    assert msgspec.convert(asked, InputToolChoice).choice() == choice


def test_a_tool_that_the_vendor_would_run_is_left_out_and_reported() -> None:
    ignored = Ignored()
    given = tools(HOSTED, {**TOOL, "strict": True}, HOSTED)
    check_input_tools(given, None, ignored)
    assert ignored.names == ["tools.web_search"]
    assert [tool.name for tool in definitions_of(given)] == ["f"]


def test_a_tool_of_the_vendor_that_the_client_runs_is_offered_under_its_name() -> None:
    ignored = Ignored()
    given = tools(
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "editor", "max_characters": 9, "strict": True},
    )
    check_input_tools(
        given, msgspec.convert({"type": "tool", "name": "bash"}, InputToolChoice), ignored
    )
    assert ignored.names == []
    bash, editor = definitions_of(given)
    assert (bash.name, editor.name) == ("bash", "editor")
    assert bash.description
    assert bash.parameters is not None
    assert bash.parameters["properties"].keys() == {"command", "restart"}
    assert [(shape.parameters, shape.strict) for shape in shapes_of(given)] == [
        (bash.parameters, False),
        (editor.parameters, True),
    ]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            {"type": "tool", "name": "computer"},
            "'computer' is a tool of type computer_20250124, which this server does not offer.",
        ),
        ({"type": "any"}, "this server offers none of 'tools'."),
    ],
)
def test_a_choice_that_only_a_tool_left_out_could_satisfy_is_refused(
    choice: Any, words: str
) -> None:
    given = tools({"type": "computer_20250124", "name": "computer"})
    with pytest.raises(InvalidRequestError) as caught:
        check_input_tools(given, msgspec.convert(choice, InputToolChoice), Ignored())
    assert caught.value.message.endswith(words)
    assert caught.value.param == "tool_choice"


def test_what_a_vendors_tool_is_given_in_vain_is_reported() -> None:
    ignored = Ignored()
    own = {"name": "f", "description": "Mine.", "input_schema": {"type": "object"}}
    vendors = {**own, "type": "bash_20250124", "name": "bash"}
    check_input_tools(tools(own, vendors), None, ignored)
    assert ignored.names == ["tools[1].description", "tools[1].input_schema"]


def test_a_constraint_names_the_tools_place_in_the_request() -> None:
    (shape,) = shapes_of(tools(HOSTED, {**TOOL, "strict": True}))
    assert (shape.name, shape.param, shape.strict) == ("f", "tools.1.input_schema", True)


@pytest.mark.parametrize(
    ("given", "choice", "param"),
    [
        ([TOOL, {"name": "g"}], None, "tools.1"),
        ([TOOL, {"input_schema": {}}], None, "tools.1"),
        ([TOOL, HOSTED, TOOL], None, "tools.2.name"),
        ([{"type": "bash_20250124"}], None, "tools.0"),
        ([TOOL], {"type": "tool"}, "tool_choice"),
    ],
)
def test_an_unsound_tool_is_named(given: list[Any], choice: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_input_tools(tools(*given), msgspec.convert(choice, InputToolChoice | None), Ignored())
    assert caught.value.param == param
