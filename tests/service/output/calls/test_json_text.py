"""JSON is recognized while it arrives as Python's json recognizes it whole."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.output.calls.json_text import (
    INVALID,
    JsonScanner,
    ValueEnding,
    dumps,
    loads,
    read_container,
    read_string,
    read_value,
    string_inside,
)
from service.output.calls.source import NotACallError, Source, Stop
from tests.service.output.calls.reading import Recorder, read
from tests.service.output.parsing import cut

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def scan(pieces: list[str]) -> int | None:
    """Where the value ends in the joined pieces."""
    scanner, start = JsonScanner(), 0
    for piece in pieces:
        end = scanner.scan(piece)
        if end is not None:
            return start + end
        if scanner.broken_at is not None:
            return None
        start += len(piece)
    return None


@given(
    value=st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=3), VALUES, max_size=3),
    indent=st.sampled_from([None, 2]),
    places=st.lists(st.integers(0, 500), max_size=5),
)
def test_any_value_ends_where_it_ends(value: Any, indent: int | None, places: list[int]) -> None:
    text = json.dumps(value, indent=indent)
    assert scan(cut(text + ' , "more"', places)) == len(text)


@given(text=st.text('{}[]",:1.e-tru \\\n', max_size=12).map(lambda text: "[" + text))
@example("[tru]")
@example("[1,]")
@example("[01]")
@example('{"a" 1}')
@example("[1e999]")
@example("[-]")
def test_what_python_cannot_read_is_not_taken_for_a_value(text: str) -> None:
    end = scan([text])
    assert end == scan(list(text))
    if end is not None and "\\" not in text:  # escapes are not looked at
        assert loads(text[:end]) is not INVALID


def container(text: str, *first_keys: str, **options: Any) -> tuple[ValueEnding, str, str | None]:
    """How it ended, what was emitted, and the rest."""
    endings: list[ValueEnding] = []

    def begin(source: Source, sink: Recorder) -> Generator[None, None, None]:
        sink.begin("f")
        ending = yield from read_container(source, sink.arguments, first_keys=first_keys)
        endings.append(ending)

    told, rest = read(begin, text, **options)
    assert len(set(endings)) == 1
    return endings[0], told.calls[0].arguments, rest


def test_raw_control_characters_in_strings_are_escaped_and_nothing_else_changes() -> None:
    ending, emitted, rest = container('{"a": "x\ny\t",\n "b": [1.50]}z')
    assert (ending, rest) == (ValueEnding.WHOLE, "z")
    assert emitted == '{"a": "x\\ny\\t",\n "b": [1.50]}'


def test_broken_json_extends_to_its_last_bracket_or_the_formats_tag() -> None:
    assert container('{a: [1, "}"]} rest') == (ValueEnding.BROKEN, '{a: [1, "}"]}', " rest")
    ending, emitted, rest = container('{"a": {b</call> x', stop_tags=("</call>",))
    assert (ending, emitted, rest) == (ValueEnding.BROKEN, '{"a": {b', "</call> x")


def test_broken_json_ends_where_another_call_begins() -> None:
    ending, emitted, rest = container('{"a": 1 {"name": "g"}', "name")
    assert (ending, emitted, rest) == (ValueEnding.AT_CALL, '{"a": 1 ', '{"name": "g"}')
    ending, _, rest = container('{"a": "Oslo, {"name": "g"}', "name")
    assert (ending, rest) == (ValueEnding.IN_CALL, 'name": "g"}')


@pytest.mark.parametrize("kind", Stop)
def test_a_tag_in_a_string_is_text_if_the_string_continues_unless_it_is_certain(
    kind: Stop,
) -> None:
    text = '{"a": "say </call>"} on'
    ending, emitted, rest = container(text, stop_tags=("</call>",), kind=kind)
    if kind is Stop.CERTAIN:
        assert (ending, emitted, rest) == (ValueEnding.BROKEN, '{"a": "say ', '</call>"} on')
    else:
        assert (ending, emitted, rest) == (ValueEnding.WHOLE, '{"a": "say </call>"}', " on")


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ('"a\\"\\u00fc\n", 1', 'a"ü\n', ", 1"),
        ("-1.5e3]", -1500.0, "]"),
        ("null,", None, ","),
        ('{"a": [{}]}}', {"a": [{}]}, "}"),
    ],
)
def test_a_value_is_what_json_says(text: str, value: Any, rest: str) -> None:
    found: list[Any] = []

    def begin(source: Source, _: Recorder) -> Generator[None, None, None]:
        found.append((yield from read_value(source)))

    assert read(begin, text)[1] == rest
    assert found == [value, value]


@pytest.mark.parametrize("text", ["NaN,", "1e999,", "nil,", "{a: 1} ", '"\\ud83d" '])
def test_an_invalid_value_is_not_a_call(text: str) -> None:
    with pytest.raises(NotACallError):
        read(lambda source, _: read_value(source), text)
    with pytest.raises(NotACallError):
        read(lambda source, _: read_string(source), text)


@given(text=st.text(st.characters(codec=None)))
def test_what_is_written_reads_back_and_can_be_sent(text: str) -> None:
    written = dumps({"a": text})
    written.encode()
    assert json.loads(written) == {"a": text}
    assert json.loads(f'"{string_inside(text)}"') == text


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "9" * 400, "[" * 100_000, ""])
def test_text_that_other_readers_of_json_refuse_is_invalid(text: str) -> None:
    assert loads(text) is INVALID


def test_raw_control_characters_are_read_unless_strict() -> None:
    assert loads('"a\nb"') == "a\nb"
    assert loads('"a\nb"', strict=True) is INVALID
