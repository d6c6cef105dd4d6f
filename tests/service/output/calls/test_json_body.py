"""Calls written as JSON: one object, an array of them, several in a row, or after a name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import JsonBody, NamedJsonBody, named_format
from service.output.calls.json_body import first_keys, read_json_calls, read_named_json
from service.output.calls.source import NotACallError
from tests.service.output.calls.reading import Call, read

TOOLS: dict[str, Any] = {"f": None, "g": None}


def calls(text: str, body: JsonBody, **options: Any) -> tuple[list[Call], str | None]:
    told, rest = read(lambda s, sink: read_json_calls(s, sink, body, TOOLS), text, **options)
    return told.calls, rest


def named(text: str, body: NamedJsonBody, **options: Any) -> tuple[list[Call], str | None]:
    told, rest = read(lambda s, sink: read_named_json(s, sink, body, "</call>"), text, **options)
    return told.calls, rest


F, G = '{"name": "f", "arguments": {"a": [1]}}', '{"name": "g", "arguments": {}}'
BOTH = [Call("f", None, '{"a": [1]}', True), Call("g", None, "{}", True)]


@pytest.mark.parametrize(
    "text",
    [
        f"[{F}, {G}]",
        f" [ {F} , {G} ]",
        f"{F}; {G}",
        f"{F}\n{G}",
        f"[{F}}}, {G}}}]",
        f"[{F} {G}]",
        f"{F}}} }}\n{G}",
    ],
    ids=[
        "array",
        "spaced",
        "semicolon",
        "lines",
        "braces written twice",
        "comma forgotten",
        "brace written thrice",
    ],
)
def test_several_calls_are_read_in_every_way_to_write_them(text: str) -> None:
    found, _ = calls(text + "|", JsonBody())
    assert found == BOTH


def test_an_id_is_the_calls_own_and_the_order_of_keys_is_free() -> None:
    body = JsonBody(id_key="id")
    expected = [Call("f", "c1", '{"a": 1}', True)]
    for text in (
        '{"name": "f", "id": "c1", "arguments": {"a": 1}}',
        '{"id": "c1", "arguments": {"a": 1}, "name": "f"}',
        '{"name": "f", "id": "c1", "arguments": "{\\"a\\": 1}"}',
    ):
        assert calls(f"{text}|", body) == (expected, "|")


def test_an_object_keyed_by_the_tools_name_holds_its_arguments() -> None:
    body = JsonBody(keyed_by_name=True)
    assert calls('{"g": {"b": 2}}|', body) == ([Call("g", None, '{"b": 2}', True)], "|")
    assert first_keys(body, TOOLS) == ("f", "g")


def test_a_call_without_its_end_harms_only_itself() -> None:
    found, _ = calls(f'[{{"name": "f", "arguments": {{"a": "x, {G}]', JsonBody())
    assert [(call.name, call.whole) for call in found] == [("f", False), ("g", True)]
    assert json.loads(found[1].arguments) == {}


@pytest.mark.parametrize("text", ["f()", '{"name": "f", "arguments": [1]}', '{"a": 1}'])
def test_text_that_is_not_a_call_is_not_reported_as_one(text: str) -> None:
    with pytest.raises(NotACallError):
        calls(text + " ", JsonBody())


def test_arguments_that_are_cut_off_are_reported_as_far_as_they_came() -> None:
    found, rest = calls('{"name": "f", "arguments": {"a": "Os', JsonBody(), truncated=True)
    assert (found, rest) == ([Call("f", None, '{"a": "Os', None)], None)


def test_a_name_and_a_separator_precede_the_arguments() -> None:
    body = NamedJsonBody(separator="|", prefix="call:", end="!", header=r"(?P<name>\w+):(?P<id>\d)")
    expected = [Call("f", "7", '{"a": 1}', True)]
    for text in ('call:f:7|{"a": 1}!', ' f:7 | {"a": 1} !', 'f:7||{"a": 1}!'):
        assert named(text, body) == (expected, "")
    assert named("f:7|!", body) == ([Call("f", "7", "{}", True)], "")
    assert named("f:7|</call>", body)[0] == [Call("f", "7", "{}", True)]
    for text in ('f|{"a": 1}!', "f:7|[1]!", "x" * 600 + "|{}!"):
        with pytest.raises(NotACallError):
            named(text, body)


def test_ids_in_kimis_headers_are_reported() -> None:
    shipped = named_format("tool_calls", "kimi_k2")
    body = None if shipped.calls is None else shipped.calls.body
    assert isinstance(body, NamedJsonBody)
    written = body.prefix + body.written.format(name="f", index=0) + body.separator
    found, _ = named(f'{written}{{"a": 1}}{body.end}', body)
    assert found == [Call("f", "functions.f:0", '{"a": 1}', True)]
