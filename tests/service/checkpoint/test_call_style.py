"""Calls reach a template in the form that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from service.checkpoint.call_style import CallStyle, as_text

TEXT = CallStyle(text_arguments=True)


def conversation(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]},
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
    ],
    ids=["empty", "as tojson writes them", "text that is no object"],
)
def test_text_is_json(arguments: Any, text: str) -> None:
    assert as_text(arguments) == text
