"""The names of arguments. What grammars write and readers read back is tested with every format in
``tests/service/constraint/test_calls.py``."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from service.formats import (
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
)
from service.formats.format import Body
from service.output.calls.keys import OwnNames, can_carry, read_name, written_name
from service.output.calls.source import Source
from tests.service.output.calls.reading import drive

QUOTED = ParametersBody(key_open='<p name="', key_end='"', value_close="</p>", attributes="string")
ESCAPED = ParametersBody(key_open='<p name="', key_end='"', value_close="</p>", escaped=True)
PLAIN = ParametersBody(key_open="<p=", key_end=">", value_close="</p>")
ELEMENTS = ElementsBody(mark="!", call_open="<call ", call_close="</call>")


@pytest.mark.parametrize(
    ("body", "carried", "refused"),
    [
        (JsonBody(), ["a b", "=", '"', "", "n" * 600], []),
        (NamedJsonBody(separator=":"), ['"'], []),
        (QUOTED, ["a b", "a/b"], ["a=b", "a<b", 'a"b', "a\nb", " a", "", "n" * 129]),
        (ESCAPED, ['a"b', "a=b", "&amp;", "&" * 25], ["a<b", "&" * 26]),
        (PLAIN, ["a=b", 'a"b', "n" * 128], ["a>b", "a "]),
        (ELEMENTS, ["a:b", '"', "n" * 512], ["a b", "a/b", "a=b", "<", "", "n" * 513]),
        (PythonBody(), ["a=b", "a, b", "a)"], [")a", "}", " a", "", "n" * 513]),
        (RelaxedBody(call_open="", quote="'"), ["a:b", "{a}", "[", "a "], ["}", "\ta", ""]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_a_call_can_carry_names_that_its_own_syntax_does_not_cut(
    body: Body, carried: list[str], refused: list[str]
) -> None:
    assert [name for name in carried if not can_carry(body, name)] == []
    assert [name for name in refused if can_carry(body, name)] == []


def test_an_escaped_name_is_read_as_it_was_before() -> None:
    for body in (ESCAPED, PLAIN):
        for name in ('a"b', "&quot;", "&amp;quot;", "a&b"):
            assert read_name(f" {written_name(name, body)}\n", body) == name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", "a"),
        ("a:b : 1", "a:b"),
        ("a:bc:1", "a"),
        ("filter[name]:1", "filter[name]"),
        ("filter [name]:1", None),
        ("filter", None),
        ("ab:1", None),
        ("a", None),
        ("", None),
        (":1", None),
        ("n" * 513 + ":1", None),
    ],
)
def test_the_longest_of_the_tools_names_is_found(text: str, found: str | None) -> None:
    names = OwnNames(["a", "a:b", "filter[name]", "filter", "", "n" * 513])

    def ahead(source: Source) -> Generator[None, None, Any]:
        yield from source.peek(2)
        return (yield from names.ahead(source, 2, ":"))

    for pieces in ([f"--{text}"], [*"--", *text]):
        source = Source("", 0)
        assert drive(ahead(source), source, pieces, truncated=False) == (found, f"--{text}")
