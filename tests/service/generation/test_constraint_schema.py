"""The JSON schema dialect: enforced, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from service.errors import InvalidRequestError
from service.generation.constraint_schema import check_schema, nested, schema_grammar
from tests.engine.constraint.random_schemas import SchemaMaker
from tests.service.generation.grammars import accepts, grammar


def enforced(schema: dict[str, Any] | bool, text: str, **options: bool) -> bool:
    return accepts(grammar(f"start: {schema_grammar(schema, **options)}\n"), text)


VALUE = {"a": [1, 2.5, {"b": 'x\n"y"'}], "c": None, "d": {}, "e": [], "ü": "é😀"}


@pytest.mark.parametrize(
    "style",
    [{}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}],
    ids=str,
)
def test_json_is_welcome_in_every_usual_style(style: dict[str, Any]) -> None:
    text = json.dumps(VALUE, ensure_ascii=False, **style)
    assert enforced({"type": "object"}, text)
    assert enforced(True, text)


def test_white_space_does_not_go_on_forever() -> None:
    assert not enforced({"type": "object"}, "{" + " " * 100 + "}")
    assert not enforced({"type": "object"}, "{" + "\n" * 10 + "}")


def test_without_white_space_there_is_one_way_to_write_a_value() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert enforced(schema, "[1, 2]", any_whitespace=False)
    assert not enforced(schema, "[1,2]", any_whitespace=False)
    assert not enforced(schema, "[ 1, 2]", any_whitespace=False)


def test_a_property_s_name_cannot_be_spelled_past_its_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert not enforced(schema, '{"\\u0061": 3}')


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("uniqueItems", {"type": "array", "uniqueItems": True}),
        ("contains", {"contains": {"type": "string"}}),
        ("minContains", {"minContains": 2}),
        ("not", {"not": {"type": "string"}}),
        ("if", {"if": {"type": "string"}, "then": {"minLength": 3}}),
        ("dependentRequired", {"dependentRequired": {"a": ["b"]}}),
        ("dependencies", {"dependencies": {"a": ["b"]}}),
        ("propertyNames", {"propertyNames": {"pattern": "^a"}}),
        ("unevaluatedProperties", {"unevaluatedProperties": False}),
        ("$dynamicRef", {"$dynamicRef": "#a"}),
        ("format", {"type": "string", "format": "phone"}),
        ("minProperties", {"type": "object", "minProperties": 2}),
    ],
)
@pytest.mark.parametrize("place", ["properties", "$defs", "items", "anyOf"])
def test_a_keyword_that_cannot_be_enforced_is_named_with_its_path(
    keyword: str, schema: dict[str, Any], place: str
) -> None:
    inside = {
        "properties": ({"properties": {"p": schema}}, "properties.p"),
        "$defs": ({"$defs": {"d": schema}}, "$defs.d"),
        "items": ({"items": schema}, "items"),
        "anyOf": ({"anyOf": [{}, schema]}, "anyOf.1"),
    }
    whole, path = inside[place]
    with pytest.raises(InvalidRequestError) as refused:
        check_schema(whole, "response_format.json_schema.schema")
    assert keyword in refused.value.message
    assert refused.value.param == f"response_format.json_schema.schema.{path}.{keyword}"


@pytest.mark.parametrize(
    "idle",
    [
        {"uniqueItems": False},
        {"unevaluatedProperties": True},
        {"dependentRequired": {}},
        {"title": "T", "default": 3, "examples": [1], "deprecated": True, "x-own": {"not": 1}},
        {"const": {"not": {}, "if": 3}},
        {"format": "int32", "type": "integer"},
    ],
    ids=str,
)
def test_what_restricts_nothing_is_let_through(idle: dict[str, Any]) -> None:
    check_schema(idle, "schema")
    value = json.dumps(idle.get("const", 5))
    assert enforced(idle, value)


def test_a_client_cannot_set_the_library_s_own_options() -> None:
    schema = {"type": "integer", "x-guidance": {"lenient": True, "whitespace_pattern": "x*"}}
    assert enforced(schema, "5")
    assert not enforced({**schema, "type": "array", "items": schema}, "[x5]")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"enum": ["x" * 300_000]}, "larger than"),
        ({"anyOf": [{}] * 20_000}, "subschemas"),
        ({"properties": {"a": 5}}, "not a schema"),
        ({"items": "string"}, "not a schema"),
    ],
    ids=["bytes", "subschemas", "a number", "a string"],
)
def test_a_schema_is_bounded_and_sound(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        check_schema(schema, "schema")


def test_a_schema_is_not_nested_too_deeply() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(InvalidRequestError, match="deep"):
        check_schema(schema, "schema")


@pytest.mark.parametrize("seed", range(20))
def test_a_nested_schema_means_what_it_meant(seed: int) -> None:
    schema = SchemaMaker(seed).make()
    inside = {"properties": {"x/y": nested(schema, "/properties/x~1y")}, "required": ["x/y"]}
    jsonschema.Draft202012Validator.check_schema(inside)
    for value in (None, True, 7, "red", [], {}, {"a": 1}, [1, "two"], {"k": ["v"]}):
        alone = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert jsonschema.Draft202012Validator(inside).is_valid({"x/y": value}) == alone


def test_references_to_the_root_are_nested_too() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "leaf": {"const": 1}},
        "additionalProperties": False,
    }
    inside = {
        "type": "object",
        "properties": {"tree": nested(tree, "/properties/tree"), "n": {"type": "null"}},
        "required": ["tree", "n"],
        "additionalProperties": False,
    }
    assert enforced(inside, '{"tree": {"left": {"left": {"leaf": 1}}}, "n": null}')
    assert not enforced(inside, '{"tree": {"left": {"n": null}}, "n": null}')
