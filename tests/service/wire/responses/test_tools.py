"""Tools by the client's names and by the model's."""

from __future__ import annotations

from typing import Any

import pytest

from service.conversation import NamedTool
from service.errors import InvalidRequestError
from service.wire.responses.request import MAX_TOOLS
from service.wire.responses.tools import Toolbox, choose_tools, read_tools


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def space(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools)}


PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edits",
    "format": {"type": "grammar", "syntax": "regex", "definition": "a+"},
}


def test_only_a_name_that_two_tools_have_gains_its_namespace() -> None:
    box = read_tools([function("f"), space("n", function("f"), function("g"))])
    assert list(box.tools) == ["f", "n__f", "g"]
    for tool in box.names():
        assert box.flat_name(tool.name, tool.namespace) == tool.flat
    assert box.flat_name("f", "elsewhere") == "f"
    again = Toolbox.named(box.names())
    assert again.names() == box.names()


def test_the_prompt_has_a_custom_tools_grammar_and_the_model_returns_one_string() -> None:
    box = read_tools([PATCH])
    (tool,) = box.definitions()
    assert tool.description is not None
    assert tool.description.startswith("Edits")
    assert "a+" in tool.description
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["input"]
    (shape,) = box.shapes()
    assert shape.custom
    assert shape.input_key == "input"
    assert shape.param == "tools[0].format.definition"


def test_a_tool_that_is_defined_again_replaces_the_first() -> None:
    first = read_tools([function("f"), {"type": "web_search"}])
    later = read_tools([{**function("f"), "description": "new"}, function("g")], "input[0].tools")
    joined = Toolbox.joined([first, later])
    assert [(t.name, t.description) for t in joined.definitions()] == [("f", "new"), ("g", None)]
    assert joined.ignored == ["tools[1].web_search"]


def test_tools_are_bounded_in_all_even_inside_namespaces() -> None:
    half = [function(f"f{index}") for index in range(MAX_TOOLS // 2 + 1)]
    with pytest.raises(InvalidRequestError) as caught:
        read_tools([space("a", *half), space("b", *half)])
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{}], "tools[0].type"),
        ([function("")], "tools[0].name"),
        ([function("f"), function("f")], "tools[1].name"),
        ([space("n", {"type": "function"})], "tools[0].tools[0].name"),
        ([{**PATCH, "format": {"type": "grammar", "syntax": "ebnf"}}], "tools[0].format.syntax"),
    ],
)
def test_an_unsound_tool_is_refused_by_its_place(tools: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_tools(tools)
    assert caught.value.param == param


def test_a_choice_is_of_tools_by_the_clients_names() -> None:
    box = read_tools([function("f"), space("n", function("f")), function("g")])
    named = {"type": "function", "name": "f", "namespace": "n"}
    assert choose_tools(named, box) == (NamedTool("n__f"), box)
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [named, {"type": "mcp"}]}
    mode, left = choose_tools(allowed, box)
    assert (mode, list(left.tools)) == ("auto", ["n__f"])
    assert left.ignored == ["tool_choice.tools[1].mcp"]


def test_a_call_is_not_required_where_no_tool_is_served() -> None:
    box = read_tools([{"type": "web_search"}])
    assert choose_tools("required", box)[0] == "auto"
    assert box.ignored[-1] == "tool_choice.required"
    assert choose_tools("required", read_tools([function("f")]))[0] == "required"
