"""The constraints on a call's arguments."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from service.constraint.arguments import (
    argument_schema,
    arguments_schema,
    check_text,
    is_binding,
    string_part,
    text_terminal,
)
from service.constraint.request import Grammar, Regex, ToolShape
from service.errors import InvalidRequestError
from tests.service.constraint.grammars import accepts, grammar

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "$defs": {"city": {"enum": ["Oslo", "Rome"]}},
}


def tool(**fields: Any) -> ToolShape:
    return ToolShape(name="f", param="tools.0", **fields)


def holds(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_only_a_strict_tools_schema_is_enforced_unless_its_call_is_forced() -> None:
    bonn, rome = {"city": "Bonn"}, {"city": "Rome"}
    for shape, exact in (
        (tool(parameters=CITY, strict=True), False),
        (tool(parameters=CITY), True),
    ):
        schema = arguments_schema(shape, exact=exact)
        assert (holds(schema, rome), holds(schema, bonn)) == (True, False)
    free = arguments_schema(tool(parameters=CITY), exact=False)
    assert (holds(free, bonn), holds(free, [1])) == (True, False)
    assert [is_binding(tool(strict=True)), is_binding(tool(custom=True)), is_binding(tool())] == [
        *(True, True, False)
    ]


def test_a_schema_that_allows_more_than_objects_still_gives_arguments() -> None:
    schema = arguments_schema(tool(parameters={"maxProperties": 1}, strict=True), exact=False)
    assert (holds(schema, {}), holds(schema, "text")) == (True, False)


def test_a_strict_schemas_unenforceable_keyword_is_refused_by_its_path() -> None:
    schema = {"type": "object", "not": {"required": ["x"]}}
    with pytest.raises(InvalidRequestError, match="'not'") as refused:
        arguments_schema(tool(parameters=schema, strict=True), exact=False)
    assert refused.value.param == "tools.0.not"
    assert holds(arguments_schema(tool(parameters=schema), exact=True), {})


@pytest.mark.parametrize(
    "shape",
    [
        Regex(pattern="ab?|c", param="p"),
        Grammar(text='start: "a" "b"? | "c"\n', param="p"),
    ],
    ids=["regex", "grammar"],
)
def test_a_custom_tools_text_travels_as_one_string(shape: Regex | Grammar) -> None:
    schema = arguments_schema(tool(custom=True, input=shape, input_key="text"), exact=False)
    for text, allowed in (("a", True), ("ab", True), ("c", True), ("abc", False), ("xc", False)):
        assert holds(schema, {"text": text}) == allowed, text
    assert not holds(schema, {})
    assert not holds(schema, {"text": "a", "more": 1})
    assert holds(arguments_schema(tool(custom=True), exact=False), {"input": "anything\n"})


def test_one_argument_alone_takes_along_what_it_refers_to() -> None:
    alone = argument_schema(CITY["properties"]["city"], CITY)
    assert (holds(alone, "Oslo"), holds(alone, "Bonn")) == (True, False)
    assert not holds(argument_schema(False, CITY), "Oslo")
    own = argument_schema({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}}, CITY)
    assert holds(own, 1)


@pytest.mark.parametrize("keyword", ["format", "allOf", "anyOf", "oneOf", "$ref"])
def test_a_keyword_that_cannot_be_enforced_on_bare_text_is_refused_by_name(keyword: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_text({"type": "string", keyword: "x"}, "p")
    assert refused.value.param == f"p.{keyword}"
    check_text({"type": "string", "pattern": "x", "maxLength": 2}, "p")


def test_a_pattern_that_cannot_be_enforced_on_bare_text_is_refused_or_left_out() -> None:
    schema = {"type": "string", "pattern": "(?x) a b"}
    with pytest.raises(InvalidRequestError, match="'pattern'") as refused:
        check_text(schema, "p")
    assert refused.value.param == "p.pattern"
    assert text_terminal(schema, "</v>") is None  # for a tool that is not strict


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        ({"const": "a"}, ["a"], ["b", ""]),
        ({"enum": ["a", "b</v>", "!c", 5]}, ["a"], ["b</v>", "!c", "5", ""]),
        ({"enum": ["x</v>"]}, [], ["x</v>", "", "/"]),
        ({"pattern": "^a+$"}, ["a", "aa"], ["b", "ba", ""]),
        ({"pattern": "a"}, ["bab", "a\n"], ["b", "a</v>"]),
        ({"pattern": "^a|b$"}, ["ax", "xb", "a"], ["xa", "bx"]),
        ({"pattern": r"^[|(^]|\\|\$$"}, ["|x", "(", "a$", "a\\b"], ["x|", "$a"]),
        ({"pattern": "(a|b)c"}, ["xacx", "bc"], ["a", "c"]),
        ({"pattern": "(^a|^b)c"}, ["acx", "bc"], ["xac", "a"]),
        ({"pattern": "(?i)^a|B$"}, ["Ax", "xb"], ["xa", "bx"]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "a\nb"], ["a", "abcd"]),
        ({"pattern": "^a", "maxLength": 2}, ["a", "ab"], ["b", "abc"]),
    ],
)
def test_bare_text_follows_its_schema_and_never_holds_what_ends_it(
    schema: dict[str, Any], allowed: list[str], refused: list[str]
) -> None:
    terminal = text_terminal(schema, "</v>", never_first="!")
    asked = grammar(f'start: "<v>" TEXT\nTEXT: ({terminal}) "</v>"\n')
    for text in allowed:
        assert accepts(asked, f"<v>{text}</v>"), text
    for text in refused:
        assert not accepts(asked, f"<v>{text}</v>"), text


def test_a_schema_that_says_nothing_of_a_text_makes_no_terminal() -> None:
    assert text_terminal({"type": "string", "description": "any"}, "</v>") is None


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"type": ["string", "null"], "maxLength": 3}, {"type": "string", "maxLength": 3}),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, {"type": "string", "enum": ["a"]}),
        ({"oneOf": [{"$ref": "#/$defs/city"}, {"type": "null"}], "title": "C"}, "city"),
        ({"$ref": "#/$defs/city", "description": "d"}, "city"),
        ({}, {"type": "string"}),
        ({"type": ["integer", "null"]}, None),
        ({"enum": [1, None]}, None),
        ({"type": ["string", "null"], "format": "date"}, None),
        ({"anyOf": [{"type": "string"}, {"enum": ["a", 1]}]}, None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "maxLength": 3}, None),
        ({"$ref": "#/$defs/loop"}, None),
        (True, None),
    ],
)
def test_the_strings_among_other_values_have_a_schema_of_their_own(part: Any, found: Any) -> None:
    root: dict[str, Any] = {"$defs": {**CITY["$defs"], "loop": {"$ref": "#/$defs/loop"}}}
    if found == "city":
        found = {"type": "string", "enum": ["Oslo", "Rome"]}
    assert string_part(part, root) == found
