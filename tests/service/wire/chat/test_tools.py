"""Which tools of a chat request are served, and which of those may be called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.conversation import NamedTool
from service.errors import InvalidRequestError
from service.wire.chat.request import ChatRequest, chat_conversation, chat_task, decode_chat
from service.wire.decode import Ignored
from service.wire.texts.tokenize import decode_tokenize

USER = {"role": "user", "content": "Hi"}
SEARCH = {"type": "web_search"}
CUSTOM = {"type": "custom", "custom": {"name": "patch"}}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def decode(**fields: Any) -> tuple[ChatRequest, list[str]]:
    ignored = Ignored()
    body = json.dumps({"messages": [USER], **fields}).encode()
    return decode_chat(body, max_choices=16, ignored=ignored), ignored.names


def chosen(**fields: Any) -> tuple[Any, list[str], list[str]]:
    """The choice, the tools that the model sees, and what is reported."""
    request, reported = decode(**fields)
    conversation = chat_conversation(request)
    return conversation.tool_choice, [tool.name for tool in conversation.tools], reported


def allowed(*tools: dict[str, Any], mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_the_allowed_tools_may_be_called(mode: str) -> None:
    tools = [function("f"), function("g"), function("h")]
    choice = allowed(function("h"), function("g"), mode=mode)
    assert chosen(tools=tools, tool_choice=choice) == (mode, ["g", "h"], [])


def test_errors_about_a_tool_name_its_place_in_the_request() -> None:
    tools = [function("f"), SEARCH, function("g"), function("h")]
    task = chat_task(decode(tools=tools, tool_choice=allowed(function("g"), function("h")))[0])
    assert task.tools is not None
    assert [(tool.name, tool.param) for tool in task.tools] == [
        ("g", "tools.2.function.parameters"),
        ("h", "tools.3.function.parameters"),
    ]


def test_tools_that_nothing_here_runs_are_left_out_and_reported() -> None:
    tools = [SEARCH, function("f"), {"type": "mcp", "server_label": "s"}]
    assert chosen(tools=tools) == (
        "auto",
        ["f"],
        ["tools[0].web_search", "tools[2].mcp"],
    )
    ignored = Ignored()
    body = json.dumps({"messages": [USER], "tools": [SEARCH]}).encode()
    decode_tokenize(body, ignored)
    assert ignored.names == ["tools[0].web_search"]


@pytest.mark.parametrize(
    ("tools", "choice", "expected", "reported"),
    [
        ([SEARCH, function("f")], SEARCH, ("auto", ["f"]), ["tool_choice.web_search"]),
        ([SEARCH], "required", ("auto", []), ["tool_choice.required"]),
        ([SEARCH, function("f")], "required", ("required", ["f"]), []),
        (
            [SEARCH, function("f")],
            allowed(SEARCH, function("f"), mode="required"),
            ("required", ["f"]),
            ["tool_choice.allowed_tools.tools[0].web_search"],
        ),
        (
            [SEARCH, function("f")],
            allowed(SEARCH, mode="required"),
            ("auto", []),
            ["tool_choice.allowed_tools.tools[0].web_search", "tool_choice.required"],
        ),
        ([SEARCH, function("f")], function("f"), (NamedTool("f"), ["f"]), []),
    ],
)
def test_the_choice_of_a_tool_that_is_left_out_is_reported(
    tools: list[dict[str, Any]], choice: Any, expected: tuple[Any, list[str]], reported: list[str]
) -> None:
    mode, names, all_reported = chosen(tools=tools, tool_choice=choice)
    assert (mode, names) == expected
    assert all_reported == ["tools[0].web_search", *reported]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"tools": [function("f"), CUSTOM]}, "tools[1].type", "/v1/responses"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "Missing required"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", "Missing required"),
        ({"tool_choice": CUSTOM}, "tool_choice.type", "/v1/responses"),
        ({"tool_choice": SEARCH}, "tool_choice", "allowed_tools"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", '"function": {"name"'),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools", "Missing"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [function("f")]}},
            "tool_choice.allowed_tools",
            "Missing",
        ),
        ({"tool_choice": allowed()}, "tool_choice.allowed_tools.tools", ">= 1"),
        ({"tool_choice": allowed(mode="none")}, "tool_choice.allowed_tools.mode", "'none'"),
        (
            {"tool_choice": allowed(function("g"))},
            "tool_choice.allowed_tools.tools[0].function.name",
            "'g', which is not among 'tools'",
        ),
        (
            {"tool_choice": allowed({"type": "function", "name": "f"})},
            "tool_choice.allowed_tools.tools[0].function",
            "Missing",
        ),
        ({"tool_choice": allowed({})}, "tool_choice.allowed_tools.tools[0].type", "Missing"),
        (
            {"tool_choice": allowed(CUSTOM)},
            "tool_choice.allowed_tools.tools[0].type",
            "/v1/responses",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_place(
    fields: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        decode(**{"tools": [function("f")], **fields})
    assert refused.value.param == param
    assert said in str(refused.value)


def test_tokenizing_refuses_custom_tools_too() -> None:
    body = json.dumps({"messages": [USER], "tools": [CUSTOM]}).encode()
    with pytest.raises(InvalidRequestError, match="custom tools"):
        decode_tokenize(body)


@pytest.mark.parametrize("kind", ["fuction", "", "web_search"])
def test_a_tool_with_a_function_must_have_that_type(kind: str) -> None:
    with pytest.raises(InvalidRequestError, match="must be 'function'") as refused:
        decode(tools=[{**function("f"), "type": kind}])
    assert refused.value.param == "tools[0].type"


def test_allowed_tools_need_tools_and_not_functions() -> None:
    with pytest.raises(InvalidRequestError, match="needs 'tools'"):
        decode(functions=[{"name": "f"}], tool_choice=allowed(function("f")))


def test_a_choice_of_any_depth_is_refused_in_a_few_words() -> None:
    deep: Any = []
    for _ in range(600):
        deep = [deep]
    with pytest.raises(InvalidRequestError, match="not an object of type 'q'") as refused:
        decode(tools=[function("f")], tool_choice={"type": "q", "a": deep})
    assert len(refused.value.message) < 250
