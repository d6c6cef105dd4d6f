"""The JSON schema dialect: enforced, or refused by name."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import json
import re
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import UUID4, Base64Str, BaseModel, Field, SecretStr, TypeAdapter

from service.constraint.schema import enforceable
from service.errors import InvalidRequestError
from tests.service.constraint.grammars import enforced


def check_schema(schema: dict[str, Any] | bool, param: str) -> None:
    """Raises InvalidRequestError for the first keyword that cannot be enforced, as for a strict
    schema."""
    for error in enforceable(schema, param).left_out:
        raise error


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("uniqueItems", {"type": "array", "uniqueItems": True}),
        ("contains", {"contains": {"type": "string"}}),
        ("contains", {"contains": True}),
        ("minContains", {"minContains": 2}),
        ("not", {"not": {"type": "string"}}),
        ("if", {"if": {"type": "string"}, "then": {"minLength": 3}}),
        ("dependentRequired", {"dependentRequired": {"a": ["b"]}}),
        ("dependencies", {"dependencies": {"a": ["b"]}}),
        ("propertyNames", {"propertyNames": {"minLength": 2}}),
        ("unevaluatedProperties", {"unevaluatedProperties": False}),
        ("$dynamicRef", {"$dynamicRef": "#a"}),
        ("format", {"type": "string", "format": "phone"}),
        ("minProperties", {"type": "object", "minProperties": 2}),
        ("const", {"const": 2**53 + 1}),
        ("enum", {"enum": [1, {"id": [-(2**60)]}]}),
        ("const", {"const": "x\x00y"}),
        ("enum", {"enum": ["a", {"colour": ["\x1b[0m"]}]}),
        ("const", {"const": "\x7f"}),
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
        {"const": 2**53},
        {"const": {"a\x01": "\b\t\n\f\r"}},
        {"format": "int32", "type": "integer"},
    ],
    ids=str,
)
def test_keywords_that_restrict_nothing_are_accepted(idle: dict[str, Any]) -> None:
    check_schema(idle, "schema")
    value = json.dumps(idle.get("const", 5))
    assert enforced(idle, value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "maxLength": 2.0, "minLength": 1.0}, '"ab"', '"abc"'),
        ({"type": "array", "maxItems": 2.0, "minItems": 1.0}, "[1, 2]", "[]"),
        ({"type": "object", "minProperties": 1.0}, '{"a": 1}', "{}"),
    ],
)
def test_counts_may_be_written_with_a_point(schema: dict[str, Any], good: str, bad: str) -> None:
    read = enforceable(schema, "s")
    assert not read.paths
    assert enforced(read.schema, good)
    assert not enforced(read.schema, bad)


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


# --- what generators of schemas write -------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Left(BaseModel):
    side: Literal["left"]
    reach: int


class Right(BaseModel):
    side: Literal["right"]
    note: str


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


# (type, a value as JSON, a JSON value that is not one, what is left out)
PYDANTIC: list[tuple[Any, str, str | None, list[str]]] = [
    (dict[str, int], '{"a": 1}', '{"a": "b"}', []),
    (dict[int, str], '{"1": "a"}', '{"1": 1}', []),
    (dict[Color, int], '{"green": 1}', '{"blue": 1}', []),
    (dict[Literal["a", "b"], int], '{"a": 2, "b": 1}', '{"c": 1}', []),
    (
        dict[Annotated[str, Field(pattern="^k[0-9]$")], int],
        '{"k1": 1}',
        '{"k1": "a"}',
        [],
    ),
    (
        dict[uuid.UUID, int],
        '{"123e4567-e89b-12d3-a456-426614174000": 1}',
        '{"me": 1}',
        [],
    ),
    (set[int], "[1, 2]", '["a"]', ["uniqueItems"]),
    (frozenset[str], '["a"]', "[1]", ["uniqueItems"]),
    (bytes, '"ab"', "1", []),
    (Path, '"/tmp/x"', "1", []),
    (SecretStr, '"ab"', "1", []),
    (uuid.UUID, '"123e4567-e89b-12d3-a456-426614174000"', '"123"', []),
    (
        UUID4,
        '"123e4567-e89b-42d3-a456-426614174000"',
        '"123e4567-e89b-12d3-a456-426614174000"',
        [],
    ),
    (Base64Str, '"YWI="', '"YW"', []),
    (re.Pattern[str], '"a+"', "1", ["format"]),
    (ipaddress.IPv4Network, '"10.0.0.0/8"', "1", ["format"]),
    (decimal.Decimal, "1.5", "true", []),
    (datetime.datetime, '"2026-11-22T08:00:00Z"', '"soon"', []),
    (datetime.timedelta, '"P1D"', '"1 day"', []),
    (
        Annotated[Left | Right, Field(discriminator="side")],
        '{"side": "right", "note": "a"}',
        '{"side": "right", "reach": 1}',
        [],
    ),
    (Tree, '{"name": "a", "children": [{"name": "b"}]}', '{"name": 1}', []),
    (tuple[int, str], '[1, "a"]', '["a", 1]', []),
    (
        Annotated[str, Field(min_length=2, max_length=3, pattern="^a")],
        '"ab"',
        '"abcd"',
        [],
    ),
]


@pytest.mark.parametrize(("kind", "good", "bad", "left_out"), PYDANTIC)
def test_pydantic_s_types_are_enforced_as_far_as_they_can_be(
    kind: Any, good: str, bad: str | None, left_out: list[str]
) -> None:
    schema = TypeAdapter(kind).json_schema()
    read = enforceable(schema, "s")
    assert read.paths == [f"s.{name}" for name in left_out]
    TypeAdapter(kind).validate_json(good)
    jsonschema.validate(json.loads(good), schema)
    assert enforced(read.schema, good)
    assert bad is None or not enforced(read.schema, bad)


LOOKAHEAD = r"^(?=.{1,9}$)[a-z]+$"

# As zod 4 writes them: (schema, good, bad, left out)
ZOD: list[tuple[dict[str, Any], str, str, list[str]]] = [
    (
        {
            "type": "object",
            "propertyNames": {"type": "string"},
            "additionalProperties": {"type": "number"},
        },
        '{"a": 1.5}',
        '{"a": "b"}',
        [],
    ),
    (
        {
            "type": "object",
            "propertyNames": {"type": "string", "enum": ["a", "b"]},
            "additionalProperties": {"type": "number"},
            "required": ["a", "b"],
        },
        '{"a": 1, "b": 2}',
        '{"a": 1}',
        [],
    ),
    ({"format": "starts_with", "pattern": "^a.*"}, '"ab"', '"ba"', []),
    ({"format": "e164", "pattern": r"^\+[1-9]\d{6,14}$"}, '"+4712345678"', '"4"', []),
    ({"format": "nanoid", "pattern": "^[a-zA-Z0-9_-]{4}$"}, '"a_B1"', '"a"', []),
    ({"format": "cuid2", "pattern": "^[0-9a-z]+$"}, '"a1"', '"A"', []),
    ({"format": "hostname", "pattern": LOOKAHEAD}, '"a.org"', '"a b"', ["pattern"]),
    ({"format": "duration", "pattern": r"^P(?!$)\d+D$"}, '"P1D"', '"1"', ["pattern"]),
    ({"format": "base64", "contentEncoding": "base64"}, '"YWI="', '"a b"', []),
]


@pytest.mark.parametrize(("schema", "good", "bad", "left_out"), ZOD)
def test_zod_s_schemas_are_enforced_also_where_they_must_be(
    schema: dict[str, Any], good: str, bad: str, left_out: list[str]
) -> None:
    schema = {"type": "string", **schema}
    check_schema(schema, "s")  # strict
    read = enforceable(schema, "s")
    assert read.paths == [f"s.{name}" for name in left_out]
    assert enforced(read.schema, good)
    assert not enforced(read.schema, bad)
    if not left_out:
        jsonschema.validate(json.loads(good), schema)


@pytest.mark.parametrize(
    "regex",
    [
        *("(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>", r"\ba", r"a\B"),
        *("x(^a)", "(a$)b", "(^a)?b"),
    ],
)
def test_a_pattern_that_no_automaton_matches_is_named_or_left_out(regex: str) -> None:
    schema = {"type": "string", "pattern": regex}
    with pytest.raises(InvalidRequestError) as refused:
        check_schema(schema, "s")
    assert refused.value.param == "s.pattern"
    assert enforced(enforceable(schema, "s").schema, '"anything"')


@pytest.mark.parametrize(
    "regex",
    [
        *(r"[(?=]", r"\(?=a", r"\\b", r"[\b1]", r"(?<n>a)", "[]b]"),
        *("(^a|b$)", r"x[^a]", r"x\^a", "(?x) a # ^", "(a"),
    ],
)
def test_a_pattern_that_only_looks_like_that_is_kept(regex: str) -> None:
    schema = {"type": "string", "pattern": regex}
    assert enforceable(schema, "s").schema == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"propertyNames": {"enum": "ab"}, "type": "object"},
        {"propertyNames": {"enum": ["a"]}, "required": ["b", {}], "type": "object"},
        {"propertyNames": {"$ref": "#/a/b"}, "type": "object"},
        {"propertyNames": {"$ref": "#/propertyNames"}, "type": "object"},
        {"propertyNames": {"pattern": 5}, "properties": []},
        {"propertyNames": {"pattern": "(?=a)"}},
        {"propertyNames": {"type": ["string"], "minLength": 1}},
        {"format": {}, "pattern": []},
        {"required": 5, "minProperties": 7},
    ],
    ids=json.dumps,
)
def test_an_odd_schema_does_not_cause_an_internal_error(schema: dict[str, Any]) -> None:
    read = enforceable(schema, "s")
    assert all(error.param for error in read.left_out)


@pytest.mark.parametrize(
    ("schema", "held", "paths"),
    [
        # zod's float32 and Java's long.
        ({"type": "number", "minimum": -3.4e38, "maximum": 3.4e38}, {"-1.5": True}, []),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, {str(2**61): True}, []),
        ({"type": "number", "minimum": 1e30}, {"5": True}, ["s.minimum"]),
        (
            {
                "type": "object",
                "propertyNames": {"enum": ["a", "b"]},
                "additionalProperties": {"type": "integer"},
                "maxProperties": 2,
            },
            {'{"a": 1, "b": 2}': True, '{"c": 1}': False},
            [],
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 2},
            {'{"a": 1, "c": 2}': True, '{"d": 1}': False},
            ["s.maxProperties"],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "additionalProperties": True,
                "minProperties": 1,
            },
            {'{"d": 1}': True},
            ["s.minProperties"],
        ),
        # zod's z.record(z.uuid(), …) and z.string().startsWith("a").endsWith("b").
        (
            {
                "type": "object",
                "propertyNames": {"type": "string", "format": "uuid", "pattern": "^[0-9a-f-]{36}$"},
                "additionalProperties": {"type": "integer"},
            },
            {f'{{"{uuid.UUID(int=5)}": 1}}': True, '{"a": 1}': False},
            [],
        ),
        (
            {
                "type": "string",
                "format": "ends_with",
                "allOf": [{"pattern": "^a.*"}, {"pattern": ".*b$"}],
            },
            {'"a-b"': True, '"b-a"': False},
            [],
        ),
        # Serializers that write what was not said.
        (
            {"$schema": None, "type": "string", "pattern": None, "maxLength": 2, "enum": None},
            {'"ab"': True, '"abc"': False},
            [],
        ),
        (
            {"$schema": "http://json-schema.org/schema#", "type": "object", "required": None},
            {"{}": True},
            [],
        ),
    ],
    ids=str,
)
def test_what_generators_write_is_enforced_or_named_and_compiles(
    schema: dict[str, Any], held: dict[str, bool], paths: list[str]
) -> None:
    made = enforceable(schema, "s")
    assert made.paths == paths
    assert {text: enforced(made.schema, text) for text in held} == held


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        *(("My Int", reference) for reference in ("#/$defs/My%20Int", "#/$defs/My Int", "#number")),
        *(("L[int]", reference) for reference in ("#/$defs/L%5Bint%5D", "#/$defs/L[int]")),
        *(("größe", reference) for reference in ("#/$defs/größe", "#/$defs/gr%C3%B6%C3%9Fe")),
    ],
)
def test_references_are_followed_however_they_are_written(name: str, reference: str) -> None:
    number = {"$anchor": "number", "type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"properties": {"at": {"$ref": reference}}, "$defs": {name: number}}
    read = enforceable(schema, "p")
    assert read.schema["$defs"][name]["additionalProperties"] is False  # type: ignore[index]
    assert enforced(read.schema, '{"at": {"n": 5}}')
    assert not enforced(read.schema, '{"at": {"n": "5"}}')
    assert not enforced(read.schema, '{"at": {"m": 5}}')


@pytest.mark.parametrize(
    ("bounds", "allowed", "refused"),
    [
        ({"minimum": 2**53 + 1, "maximum": 2**53 + 8}, 2**53 + 2, 2**53),
        ({"minimum": 0, "maximum": 2**53 + 1}, 2**53, 2**53 + 2),
        ({"maximum": 0, "minimum": -(2**53) - 1}, -(2**53), -(2**53) - 2),
        ({"minimum": 5, "exclusiveMaximum": 2**53 + 3}, 2**53, 2**53 + 3),
    ],
)
def test_integer_bounds_that_no_double_holds_are_not_exceeded(
    bounds: dict[str, int], allowed: int, refused: int
) -> None:
    schema = enforceable({"type": "integer", **bounds}, "p").schema
    assert enforced(schema, str(allowed))
    assert not enforced(schema, str(refused))
