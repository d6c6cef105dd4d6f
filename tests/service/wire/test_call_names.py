"""A tool's message has its function's name, which templates may require."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.conversation import JsonObject
from service.wire.call_names import name_results
from service.wire.chat.request import chat_conversation, decode_chat
from service.wire.decode import Ignored
from service.wire.messages.request import decode_messages, messages_conversation
from service.wire.messages.signatures import Signer


def calls(*ids_and_names: tuple[str | None, str]) -> JsonObject:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for call_id, name in ids_and_names
        ],
    }


def result(call_id: str, **more: Any) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": "x", **more}


def test_the_name_is_that_of_the_latest_call_with_the_id() -> None:
    messages = [
        calls(("a", "first"), ("b", "second")),
        *(result("b"), result("a")),
        calls(("a", "third")),
        result("a"),
    ]
    name_results(messages)
    names = [one["name"] for one in messages if one["role"] == "tool"]
    assert names == ["second", "first", "third"]


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        ([calls(("a", "f")), result("a", name="own")], "own"),
        ([calls(("a", "f")), result("a", name="")], "f"),
        ([calls(("a", "f")), result("b")], None),
        ([calls((None, "f")), {"role": "tool", "content": "x"}], None),
        ([result("a")], None),
        ([calls(("a", "f")), {"role": "user", "content": "x"}], None),
    ],
    ids=["the client's wins", "an empty one", "another id", "no id", "no call before", "a user"],
)
def test_other_messages_keep_what_they_have(messages: list[JsonObject], name: str | None) -> None:
    name_results(messages)
    assert messages[-1].get("name") == name


def test_chat_names_results() -> None:
    messages = [calls(("a", "f")), result("a"), calls(("b", "g")), result("b", name="own")]
    body = json.dumps({"messages": messages}).encode()
    made = chat_conversation(decode_chat(body, max_choices=1)).messages
    assert [one.get("name") for one in made] == [None, "f", None, "own"]


def test_messages_names_results() -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
    ]
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": messages}).encode()
    made = messages_conversation(decode_messages(body, Ignored()), Signer("a secret")).messages
    assert [one.get("name") for one in made] == [None, None, "f"]
