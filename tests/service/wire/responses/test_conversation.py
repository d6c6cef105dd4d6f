"""From items to messages: what a chat template sees of a Responses request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.conversation import NamedTool
from service.errors import InvalidRequestError
from service.wire.responses.conversation import ReadRequest, own_items, read_request
from service.wire.responses.request import decode_responses
from service.wire.responses.seal import ReasoningSeal

SEAL = ReasoningSeal(b"a secret of sixteen bytes or more")
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CUSTOM = {
    "type": "custom",
    "name": "patch",
    "description": "Edits a file",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"},
}
# As Codex sends them: its newest models get their tools in an item.
ADDITIONAL = {
    "type": "additional_tools",
    "id": "at_1",
    "role": "developer",
    "tools": [
        {"type": "namespace", "name": "functions", "description": "", "tools": [CUSTOM, FUNCTION]},
        {"type": "namespace", "name": "clock", "description": "Time", "tools": [
            {"type": "function", "name": "sleep", "parameters": {"type": "object"}},
        ]},
    ],
}  # fmt: skip


def read(
    given: Any = "x", history: list[dict[str, Any]] | None = None, **fields: Any
) -> ReadRequest:
    request = decode_responses(json.dumps({"input": given, **fields}).encode())
    return read_request(
        request, history or [], own_items(request), lambda content: SEAL.open(content, "me")
    )


def messages(given: Any, **fields: Any) -> list[dict[str, Any]]:
    return read(given, **fields).conversation.messages


def refused(given: Any = "x", **fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(given, **fields)
    return caught.value


def test_a_string_is_what_the_user_says() -> None:
    assert messages("Hello") == [{"role": "user", "content": "Hello"}]


def test_instructions_and_leading_developer_messages_are_one_system_message() -> None:
    developer = {"type": "message", "role": "developer", "content": [
        {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"},
    ]}  # fmt: skip
    user = {"role": "user", "content": "Hi"}
    assert messages([developer, developer, user], instructions="Be brief.") == [
        {"role": "system", "content": "Be brief.\n\na\nb\n\na\nb"},
        {"role": "user", "content": "Hi"},
    ]


def test_a_turn_of_several_items_is_one_message_of_the_assistant() -> None:
    items = [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
            {"type": "reasoning_text", "text": "I must look."}]},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [
            {"type": "output_text", "text": "One moment.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "aaa"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [
            {"type": "input_text", "text": "done"}]},
    ]  # fmt: skip
    assistant, first, second = messages(items, tools=[FUNCTION, CUSTOM])[1:]
    assert assistant["reasoning_content"] == "I must look."
    assert assistant["content"] == "One moment."
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "look", "arguments": {"at": 1}},
        {"name": "patch", "arguments": {"input": "aaa"}},
    ]
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "sun", "name": "look"}
    assert second["content"] == "done"


def test_reasoning_after_a_call_begins_a_new_message() -> None:
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "why"}]}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    assert len(messages([reasoning, call, reasoning, call])) == 2


def test_sealed_reasoning_comes_back_into_the_prompt() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": SEAL.seal("why", "me")}
    said = {"role": "assistant", "content": "So."}
    assert messages([sealed, said]) == [
        {"role": "assistant", "content": "So.", "reasoning_content": "why"}
    ]


def test_reasoning_is_read_once_from_its_content_or_else_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "why"}]
    said = {"role": "assistant", "content": "So."}
    for content in (None, [], [{"type": "reasoning_text", "text": "why"}]):
        item = {"type": "reasoning", "summary": summary, "content": content}
        assert messages([item, said])[0]["reasoning_content"] == "why"


def test_sealed_reasoning_that_was_changed_is_left_out_and_reported() -> None:
    sealed = SEAL.seal("why", "me")
    changed = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    item = {"type": "reasoning", "summary": [], "encrypted_content": changed}
    given = read([item, {"role": "assistant", "content": "So."}])
    assert given.conversation.messages == [{"role": "assistant", "content": "So."}]
    assert given.ignored == ["input[0].encrypted_content"]


def test_tools_in_an_item_count_like_those_of_the_request() -> None:
    given = read([ADDITIONAL, {"role": "user", "content": "x"}])
    assert list(given.toolbox.tools) == ["patch", "look", "sleep"]
    assert given.toolbox.tools["sleep"].namespace == "clock"
    assert given.ignored == []
    shape = given.toolbox.shapes()[0]
    assert shape.custom
    assert shape.param == "input[0].tools[0].tools[0].format.definition"


def test_tools_with_the_same_name_in_two_namespaces_are_distinguished() -> None:
    spaces = [
        {"type": "namespace", "name": name, "description": "", "tools": [FUNCTION]}
        for name in ("a", "b")
    ]
    given = read(tools=spaces)
    assert list(given.toolbox.tools) == ["a__look", "b__look"]
    assert given.toolbox.flat_name("look", "b") == "b__look"


def test_two_indistinguishable_tools_are_refused() -> None:
    assert refused(tools=[FUNCTION, FUNCTION]).param == "tools[1].name"


def test_kinds_that_nothing_here_runs_are_reported_and_no_error() -> None:
    given = read(
        [{"type": "web_search_call", "id": "ws"}, {"role": "user", "content": "x"}],
        tools=[{"type": "web_search"}, {"type": "mcp", "server_label": "s"}, FUNCTION],
        tool_choice={"type": "web_search"},
        reasoning={"summary": "auto"},
    )
    assert given.ignored == [
        "tools[0].web_search",
        "tools[1].mcp",
        "tool_choice.web_search",
        "input[0].web_search_call",
    ]
    assert given.conversation.tool_choice == "auto"
    assert [tool.name for tool in given.conversation.tools] == ["look"]


def test_a_tool_is_chosen_by_name_or_among_those_allowed() -> None:
    other = {**FUNCTION, "name": "other"}
    named = read(tools=[FUNCTION, other], tool_choice={"type": "function", "name": "look"})
    assert named.conversation.tool_choice == NamedTool("look")
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "other"}],
    }
    given = read(tools=[FUNCTION, other], tool_choice=allowed)
    assert given.conversation.tool_choice == "required"
    assert [tool.name for tool in given.conversation.tools] == ["other"]
    unknown = {"type": "function", "name": "nobody"}
    assert refused(tools=[FUNCTION], tool_choice=unknown).param == "tool_choice"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "a", "arguments": ""}]},
         "input[0].call_id"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tools": [{"name": "f"}]}, "tools[0].type"),
        ({"input": "x", "tool_choice": "perhaps"}, "tool_choice"),
        ({"input": "x", "tool_choice": {}}, "tool_choice"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x", "n": 2}, "n"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "stream_options": {}}, "stream_options"),
        ({}, "input"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], param: str
) -> None:
    def read() -> None:
        request = decode_responses(json.dumps(fields).encode())
        read_request(request, [], own_items(request), str)

    with pytest.raises(InvalidRequestError) as caught:
        read()
    assert caught.value.param == param
