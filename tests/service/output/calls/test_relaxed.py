"""Objects with bare keys, and strings between special tags."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats import RelaxedBody
from service.output.calls.relaxed import read_relaxed
from service.output.calls.source import NotACallError, Stop
from tests.service.output.calls.reading import Call, read

BODY = RelaxedBody(call_open="call:", quote="<q>", other_call_opens=("declaration:",))
TOOLS: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "text": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}},
            "filter[name]": {"type": "string"},
            "filter": {"type": "object", "properties": {"a:b": {}, "x y": {}}},
            "a:b": {},
            "{q, r}": {},
        },
    }
}


def call(text: str, **options: Any) -> tuple[Call, str | None]:
    def begin(source: Any, sink: Any) -> Any:
        return read_relaxed(source, sink, BODY, TOOLS)

    told, rest = read(begin, text, stop_tags=("<end>",), **options)
    [only] = told.calls
    return only, rest


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{}", {}),
        ('{text:<q>a, {b}: "c"\n<q>}', {"text": 'a, {b}: "c"\n'}),
        ("{n:5,text:5,list:[5,<q>x<q>]}", {"n": 5, "text": "5", "list": ["5", "x"]}),
        ('{"n": 5, "text": "a\\"b"}', {"n": 5, "text": 'a"b'}),
        ("{x:{y:[true,null,1.5,word]}}", {"x": {"y": [True, None, 1.5, "word"]}}),
        ("{filter[name]:5,a:b : <q>v<q>}", {"filter[name]": "5", "a:b": "v"}),
        ("{filter:{a:b:1,x y:2},{q, r}:[]}", {"filter": {"a:b": 1, "x y": 2}, "{q, r}": []}),
        ("{new [key]:1,new key :{a:2}}", {"new [key]": 1, "new key": {"a": 2}}),
        ("{<q>a:b<q>:two words ,n : 1,}", {"a:b": "two words", "n": 1}),
        ("{x:[1,{},[],],}", {"x": [1, {}, []]}),
    ],
)
def test_the_object_is_reported_as_json(written: str, value: Any) -> None:
    for opening in ("call:", "declaration:"):
        only, rest = call(f"{opening}f{written}<end>")
        assert (only.name, json.loads(only.arguments), only.whole) == ("f", value, True)
        assert rest == "<end>"


def test_a_tag_inside_a_string_is_text_if_the_string_continues_unless_it_is_certain() -> None:
    text = "call:f{text:<q>say <end> now<q>,n:1}<end>"
    only, _ = call(text)
    assert json.loads(only.arguments) == {"text": "say <end> now", "n": 1}
    only, rest = call(text, kind=Stop.CERTAIN)
    assert (only.whole, rest) == (False, "<end> now<q>,n:1}<end>")


@pytest.mark.parametrize(
    "written",
    [
        *("{text:<q>open<end>", "{n:[1}<end>", '{"a<end>', "{<q>a<end>", "{c:d:1}<end>"),
        *("{n}<end>", "{n:}<end>", "{n:1 <q>a<q>}<end>", "{,n:1}<end>", "{x:[1,,2]}<end>"),
        *("{n:1]}<end>", "{:1}<end>", '{"n"1}<end>', "{n:{1}}<end>"),
    ],
)
def test_what_is_not_an_object_ends_at_the_formats_tag_and_is_an_incomplete_call(
    written: str,
) -> None:
    only, rest = call(f"call:f{written}")
    assert (only.whole, rest) == (False, "<end>")


PARTS = ("{", "}", "[", "]", ":", ",", " ", "<q>", '"', "n", "a:b", "x y", "1", "filter[name]")


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_a_whole_call_has_json_whatever_is_in_it(parts: list[str]) -> None:
    only, _ = call(f"call:f{{{''.join(parts)}<end>")
    if only.whole:
        assert isinstance(json.loads(only.arguments), dict)


def test_a_call_begins_as_the_format_says() -> None:
    with pytest.raises(NotACallError):
        call("f{}<end>")
