"""Parts of messages: what a model of text reads of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.parts import ignored_in, is_thinking, medium_of, part_text, thinking_text


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "a"},
    ],
    ids=lambda part: part["type"],
)
def test_every_kind_of_text_is_read_and_nothing_of_it_ignored(part: dict[str, Any]) -> None:
    assert part_text(part, "p") == "a"
    assert ignored_in(part, "p") == []


@pytest.mark.parametrize(
    ("kind", "medium"),
    [
        ("image_url", "image"),
        ("input_audio", "audio"),
        ("video", "video"),
        ("file", "document"),
    ],
)
def test_a_medium_is_named_to_the_model_only_if_a_tool_returned_it(kind: str, medium: str) -> None:
    part = {"type": kind, "x": 1}
    assert medium_of(kind) == medium
    assert part_text(part, "p[0]", of_a_tool=True) == f"[{medium}: this server reads text only]"
    assert ignored_in(part, "p[0]") == [f"p[0].{kind}"]
    with pytest.raises(InvalidRequestError, match="text only") as caught:
        part_text(part, "p[0]")
    assert caught.value.param == "p[0].type"


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({}, "p.type"),
        ({"type": ["text"]}, "p.type"),
        ({"type": "hologram"}, "p.type"),
        ({"type": "text"}, "p.text"),
        ({"type": "text", "text": 1}, "p.text"),
        ({"type": "refusal", "text": "a"}, "p.refusal"),
    ],
)
def test_a_part_that_is_not_text_is_refused_naming_the_field(
    part: dict[str, Any], param: str
) -> None:
    for of_a_tool in (False, True):
        with pytest.raises(InvalidRequestError) as caught:
            part_text(part, "p", of_a_tool=of_a_tool)
        assert caught.value.param == param


def test_keys_besides_the_text_are_reported_unless_they_are_empty() -> None:
    part = {"type": "text", "text": "a", "annotations": [], "cache_control": {}, "x": 1, "y": 2}
    assert ignored_in(part, "p") == ["p.x", "p.y"]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "thinking", "thinking": "ab"}, "ab"),
        ({"type": "reasoning", "text": "ab"}, "ab"),
        ({"type": "thinking", "thinking": [{"text": "a"}, {"text": 1}, "x", {"text": "b"}]}, "ab"),
        ({"type": "redacted_thinking", "data": "?"}, ""),
    ],
)
def test_a_thought_is_a_text_or_parts_of_one(part: dict[str, Any], text: str) -> None:
    assert is_thinking(part)
    assert thinking_text(part) == text
    assert ignored_in(part, "p") == []
