"""Formats are read from what the checkpoint itself says."""

from __future__ import annotations

from typing import Any

import pytest

from service.generation.formats import (
    OutputFormat,
    ReasoningTags,
    ToolCallTags,
    detect_format,
    read_response_template,
)
from service.generation.formats.known import HERMES, THINK

THINKING = {"open": "<think>\n", "close": "\n</think>"}
CALLS = {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ '<think>' }}", OutputFormat(THINK, None)),
        ("{{ content.split('</think>') }}<tool_call>", OutputFormat(THINK, HERMES)),
        ("<tool_call><function=NAME>", OutputFormat(None, None)),
        ("{{ messages }}", OutputFormat(None, None)),
    ],
)
def test_a_chat_template_shows_its_familys_tags(template: str, expected: OutputFormat) -> None:
    assert detect_format(template) == expected


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
    assert read_response_template(declared) == expected
