"""The constraints on a call's arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from service.constraint.arguments import (
    Argument,
    ArgumentSchemas,
    arguments_schema,
    is_binding,
)
from service.constraint.bare_text import ANY_TEXT, NULL, SchemaTexts
from service.constraint.lark import Rules, TooLargeError
from service.constraint.request import Grammar, Regex, ToolShape
from service.errors import InvalidRequestError
from service.output.calls.tool_schemas import types_of_parameters

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "$defs": {"city": {"enum": ["Oslo", "Rome"]}},
}


def tool(**fields: Any) -> ToolShape:
    return ToolShape(name="f", param="tools.0", **fields)


def argument_schema(part: Any, root: dict[str, Any]) -> Any:
    return json.loads(schemas(root).grammar(part).removeprefix("%json "))


def schemas(root: dict[str, Any]) -> ArgumentSchemas:
    return ArgumentSchemas(root, Rules().check_room, lenient=False)


def argument(tool: ToolShape, key: str, part: Any, root: dict[str, Any]) -> Argument:
    types = types_of_parameters(root, [key])[key]
    return Argument(tool, key, part, types, SchemaTexts(root), schemas(root))


class Counted(dict[str, Any]):
    """Counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return super().__iter__()


def holds(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_one_argument_may_refer_to_another_and_to_itself() -> None:
    stop = {"properties": {"city": {"$ref": "#/$defs/city"}, "next": {"$ref": "#/properties/stop"}}}
    root = {**CITY, "properties": {"stop": stop, "last": {"$ref": "#/properties/stop"}}}
    alone = argument_schema(root["properties"]["last"], root)
    assert holds(alone, {"city": "Oslo", "next": {"city": "Rome"}})
    assert not holds(alone, {"next": {"next": {"city": "Bonn"}}})


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


@pytest.mark.parametrize("keyword", ["not", "if", "anyOf"])
def test_a_keyword_that_cannot_be_enforced_on_bare_text_is_refused_by_name(keyword: str) -> None:
    part = {"type": "string", keyword: [{"minLength": size} for size in range(99)]}
    free = argument(tool(), "city", part, CITY)
    assert free.texts() == (ANY_TEXT, ())
    with pytest.raises(InvalidRequestError, match=f"'{keyword}'") as refused:
        free._replace(tool=tool(strict=True)).texts()
    assert refused.value.param == f"tools.0.properties.city.{keyword}"


def test_null_is_the_text_of_an_argument_that_may_be_null() -> None:
    def texts(part: dict[str, Any]) -> Any:
        root = {"properties": {"a": part}}
        return argument(tool(), "a", part, root).texts()

    assert texts({"type": "string"}) == (ANY_TEXT, ())
    assert texts({"type": ["string", "null"]}) == ([*ANY_TEXT, *NULL], ())
    never = texts({"type": ["string", "null"], "enum": ["null", "a"]})
    assert never == ([({"enum": {"null": None, "a": None}},)], ("null", "None"))


def test_what_many_arguments_have_in_common_is_written_once() -> None:
    shared, joined = Counted(type="integer"), Counted(minimum=1)
    definition = {"type": "object", "properties": {"a": shared}}
    root = {"$defs": {"D": definition}}
    written = schemas(root)
    part = {"allOf": [{"$ref": "#/$defs/D"}, joined]}  # kept: grammars are known by the parts' ids
    first = written.grammar(part)
    reads = shared.reads, joined.reads
    assert min(reads) > 0
    more = [{"allOf": [{"$ref": "#/$defs/D"}, joined]} for _ in range(75)]
    assert [written.grammar(part) for part in more] == [first] * 75
    alone = [{"$ref": "#/$defs/D"} for _ in range(75)]
    assert len(set(map(written.grammar, alone))) == 1
    assert (shared.reads, joined.reads) == reads


def test_definitions_are_not_collected_beyond_the_room() -> None:
    names = [f"{number}" for number in range(500)]
    options = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    definitions = {name: Counted(const=name * 1000) for name in names}

    def check_room(chars: int) -> None:
        if chars > 10_000:
            raise TooLargeError

    written = ArgumentSchemas({"$defs": definitions}, check_room, lenient=False)
    with pytest.raises(TooLargeError):
        written.grammar(options)
    assert sum(each.reads > 0 for each in definitions.values()) < 20
