"""Calls reach a template in the form that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from service.checkpoint.call_style import CallStyle, as_text
from service.conversation import CallArguments

TEXT = CallStyle(text_arguments=True)


NULL = CallStyle(null_content=True)


def conversation(arguments: Any, content: str | None = "") -> list[dict[str, Any]]:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "content": "gone"},
    ]


def test_arguments_are_an_object_or_text() -> None:
    messages = conversation({"a": "é"})
    assert CallStyle().messages(messages) == messages
    assert TEXT.messages(messages) == conversation('{"a": "é"}')
    assert messages == conversation({"a": "é"})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "{}"),
        ({"city": "Paris", "ok": True, "n": None}, '{"city": "Paris", "ok": true, "n": null}'),
        ("[1, 2]", "[1, 2]"),
        (CallArguments({"a": 2}, '{"a":1,"a":2}'), '{"a":1,"a":2}'),
        (CallArguments({}, "{ }"), "{ }"),
    ],
    ids=["empty", "as tojson writes them", "text that is no object", "text known", "empty, known"],
)
def test_text_is_json(arguments: Any, text: str) -> None:
    assert as_text(arguments) == text


def test_calls_without_a_text_have_null_as_content() -> None:
    assert NULL.messages(conversation({})) == conversation({}, None)
    assert NULL.messages(conversation({}, "Let me see.")) == conversation({}, "Let me see.")
    silent = [{"role": "assistant", "content": ""}]
    assert NULL.messages(silent) == silent
