"""A checkpoint's own response template is followed where that can be exact."""

from __future__ import annotations

from typing import Any

import pytest

from service.formats import OutputFormat, ReasoningTags, ToolCallTags, read_response_template

THINK = ReasoningTags("<think>", "</think>")
HERMES = ToolCallTags("<tool_call>", "</tool_call>")


THINKING = {"open": "<think>\n", "close": "\n</think>"}


CALLS = {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"fields": {"thinking": THINKING, "tool_calls": CALLS}}, OutputFormat(THINK, HERMES)),
        (
            {"fields": {"reasoning_content": {"open": ["[A]", "[AB]"], "close": "[/A]"}}},
            OutputFormat(ReasoningTags("[A]", "[/A]"), None),
        ),
        (
            {"fields": {"content": {}, "tool_calls": {**CALLS, "open": "[C]", "close": "[/C]"}}},
            OutputFormat(None, ToolCallTags("[C]", "[/C]")),
        ),
        ({"fields": {"tool_calls": {**CALLS, "content": "xml-inline"}}}, None),
        ({"fields": {"thinking": {"open_pattern": "<t.*>", "close": "x"}}}, None),
        ({}, None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_a_response_template_is_followed_where_that_can_be_exact(
    declared: Any, expected: OutputFormat | None
) -> None:
    found = read_response_template(declared)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (found.reasoning, found.tool_call) == (expected.reasoning, expected.tool_call)
