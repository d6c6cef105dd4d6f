"""From a format's description to the reader of its calls, and to what may begin one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import (
    JsonBody,
    ParametersBody,
    PythonBody,
    ShippedFormat,
    ToolCallTags,
    shipped_formats,
)
from service.output.calls.reader import inner_opening, read_calls, resumes_at
from tests.service.output.calls.reading import Call, read
from tests.service.output.parsing import TOOLS

HERMES = ToolCallTags("<call>", "</call>")
CALL = '{"name": "f", "arguments": {}}'
F = Call("f", None, "{}", True)


def calls(text: str, tags: ToolCallTags = HERMES, **options: Any) -> tuple[list[Call], str | None]:
    told, rest = read(lambda s, sink: read_calls(s, sink, tags, TOOLS, **options), text)
    return told.calls, rest


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"\n{CALL}\n</call> on", " on"),
        (f"{CALL} on", "on"),
        (f"{CALL}}}\n]</call> on", " on"),
        (f"<call>\n<call>{CALL}</call>", ""),
    ],
    ids=["closed", "closing tag forgotten", "brackets closed twice", "opened again"],
)
def test_a_call_is_read_through_its_closing_tag(text: str, rest: str) -> None:
    assert calls(text) == ([F], rest)


def test_tags_with_nothing_between_them_hold_no_call() -> None:
    assert calls("\n </call> on") == ([], " on")
    assert calls("<call> </call> on") == ([], " on")


def test_a_body_that_begins_as_json_is_read_as_json_where_the_format_allows() -> None:
    tags = ToolCallTags("<call>", "</call>", body=PythonBody(), json=JsonBody())
    assert calls("[f()]</call>", tags) == ([F], "")
    assert calls(f"[ {CALL}]</call>", tags) == ([F], "")


SHIPPED = [
    shipped
    for shipped in shipped_formats("tool_calls")
    if shipped.calls is not None and shipped.calls.opens and shipped.channels is None
]


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.names[0])
def test_every_kind_of_body_has_its_reader(shipped: ShippedFormat) -> None:
    """From its first tag on, a format's own example gives the first of its calls."""
    tags = shipped.calls
    assert tags is not None
    example, opening = next(
        (one, tag)
        for one in shipped.examples
        for tag in tags.opens
        if one.calls and tag in one.text
    )
    inside = example.text.partition(opening)[2]
    stop_tags = tuple(filter(None, (*tags.opens, tags.close)))
    told, _ = read(lambda s, sink: read_calls(s, sink, tags, TOOLS), inside, stop_tags=stop_tags)
    name, arguments = example.calls[0]
    assert told.calls[0].name == name
    assert json.loads(told.calls[0].arguments) == json.loads(arguments)


def test_a_further_call_begins_as_the_format_writes_one() -> None:
    tools: dict[str, Any] = {"g": None, "f": None}
    assert '{"name":' in resumes_at(HERMES, tools)
    assert resumes_at(ToolCallTags("", body=PythonBody()), tools) == ("f(", "g(")
    own = ParametersBody(call_open="<f=", key_open="<k>", key_end="</k>", value_close="</v>")
    assert resumes_at(ToolCallTags("<call>", body=own), tools) == ()


def test_a_call_with_tags_of_its_own_is_known_without_the_one_around_it() -> None:
    own = ParametersBody(call_open="<f=", key_open="<k>", key_end="</k>", value_close="</v>")
    assert inner_opening(ToolCallTags("<call>", body=own)) == "<f="
    assert inner_opening(ToolCallTags("<f=", body=own)) == ""
    assert inner_opening(HERMES) == ""
