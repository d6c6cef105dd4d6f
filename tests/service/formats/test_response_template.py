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


@pytest.mark.parametrize(
    "field",
    [
        {"open": "<t>"},
        {"open": "<t>", "close": "</t>", "content": "json"},
        {"open": "<t>", "close": "</t>", "transform": "{content} and more"},
        {"open": "<t>", "close": "</t>", "unheard_of": True},
        "<t>",
    ],
    ids=["no end", "another body", "a transform", "an unknown key", "no object"],
)
def test_a_field_with_more_than_literal_tags_is_left_to_detection(field: Any) -> None:
    assert read_response_template({"fields": {"thinking": field}}) is None
    beside = {"fields": {"thinking": THINKING, "unheard_of": field}}
    assert read_response_template(beside) is None


def test_tags_around_the_content_mean_nothing_to_a_client() -> None:
    declared = {"fields": {"content": {"open": "<answer>\n", "close": ["</answer>", "<end>"]}}}
    found = read_response_template(declared)
    assert found is not None
    assert found.ignored == ("<answer>", "</answer>", "<end>")


def test_two_fields_of_reasoning_cannot_both_be_followed() -> None:
    both = {"thinking": THINKING, "reasoning": THINKING}
    assert read_response_template({"fields": both}) is None
