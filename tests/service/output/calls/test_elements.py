"""Calls as nested elements, whose values are what the tool's schema says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import ElementsBody
from service.output.calls.elements import read_elements
from service.output.calls.source import NotACallError
from tests.service.output.calls.reading import Call, read

BODY = ElementsBody(mark="^", call_open="<invoke name=", call_close="</invoke>")
CLOSE = "^</calls>"
TOOLS: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "n": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
    },
}


def calls(inside: str, **options: Any) -> list[Call]:
    def begin(source: Any, sink: Any) -> Any:
        return read_elements(source, sink, BODY, CLOSE, TOOLS)

    return read(begin, inside + CLOSE, stop_tags=(CLOSE,), **options)[0].calls


def invoke(arguments: str, name: str = "f") -> str:
    return f'^<invoke name="{name}">{arguments}^</invoke>'


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", {}),
        ('^<city>Oslo ^ "x"\n^</city>', {"city": 'Oslo ^ "x"\n'}),
        ("^<at>^<note>a ^ b^</note>^</at>", {"at": {"note": "a ^ b"}}),
        ("^<city>5^</city>^<n>007^</n>", {"city": "5", "n": 7}),
        ("^<n>many^</n>", {"n": "many"}),
        ("^<tags>^<item>1^</item>^<item>b^</item>^</tags>", {"tags": ["1", "b"]}),
        ("^<tags>^<item>a^</item>^</tags>", {"tags": ["a"]}),
        ("^<tags>^</tags>", {"tags": []}),
        ("^<at>^<x>1.50^</x>^<y>z^</y>^</at>", {"at": {"x": 1.5, "y": "z"}}),
        ("^<at>^</at>", {"at": {}}),
        ("^<other>^<k>a^</k>^<k>b^</k>^</other>", {"other": {"k": ["a", "b"]}}),
        ("^<other>text^<k>a^</k>^</other>", {"other": {"k": "a", "$text": "text"}}),
    ],
)
def test_elements_become_the_json_of_the_schema(written: str, value: Any) -> None:
    [only] = calls(invoke(written))
    assert (only.name, json.loads(only.arguments), only.whole) == ("f", value, True)


def test_a_closing_tag_that_the_model_forgot_is_not_waited_for() -> None:
    [only] = calls(invoke("^<city>Oslo^<n>2^</n>"))
    assert json.loads(only.arguments) == {"city": "Oslo", "n": 2}
    [only] = calls(invoke("^<n>2"))
    assert json.loads(only.arguments) == {"n": 2}


def test_text_between_arguments_makes_that_call_alone_no_whole_one() -> None:
    found = calls(invoke("oops^<n>1^</n>") + invoke("^<n>2^</n>"))
    assert [call.whole for call in found] == [False, True]
    assert json.loads(found[1].arguments) == {"n": 2}


def test_elements_nested_without_end_are_text_from_some_depth_on() -> None:
    [only] = calls(invoke("^<at>" + "^<x>" * 5000))
    json.loads(only.arguments)


@pytest.mark.parametrize("text", ["", "hello", "^<city>Oslo^</city>"])
def test_text_without_a_call_is_not_a_call(text: str) -> None:
    with pytest.raises(NotACallError):
        calls(text)
