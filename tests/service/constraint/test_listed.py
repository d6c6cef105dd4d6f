"""The arguments that a schema lists, wherever it says so."""

from __future__ import annotations

from typing import Any

import pytest

from service.constraint.listed import listed

W: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema",
    [
        W,
        {"$ref": "#/definitions/W", "definitions": {"W": W}},
        {"$ref": "#/$defs/V", "$defs": {"V": {"allOf": [{"$ref": "#/$defs/W"}]}, "W": W}},
        {**W, "minProperties": 1, "maxProperties": 2},
        {"properties": {"days": True}, "allOf": [W]},
    ],
)
def test_arguments_are_found_through_references(schema: dict[str, Any]) -> None:
    found = listed(schema)
    assert found.properties == W["properties"]
    assert (found.required, found.named, found.left_out) == ({"city"}, True, ())


def test_several_schemas_of_one_argument_hold_together() -> None:
    other = {"properties": {"city": {"maxLength": 3}, "more": {}}, "required": ["days"]}
    found = listed({"allOf": [{**W, "additionalProperties": True}, other]})
    assert found.properties["city"] == {"allOf": [{"type": "string"}, {"maxLength": 3}]}
    assert list(found.properties) == ["city", "days", "more"]
    assert found.required == {"city", "days"}
    closed = listed({"allOf": [W, other]})
    assert list(closed.properties) == ["city", "days"]


def test_a_required_argument_without_a_schema_of_its_own_is_listed() -> None:
    count = {"type": "integer"}
    found = listed({"required": ["n"], "additionalProperties": count})
    assert (found.properties, found.named, found.left_out) == ({"n": count}, True, ())


def test_without_names_any_argument_fits() -> None:
    assert not listed({"type": "object"}).named
    assert listed({"type": "object", "additionalProperties": False}).named
    assert listed({"type": "object", "properties": {}}).named


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({**W, "anyOf": [{"required": ["days"]}, {"required": ["city"]}]}, "anyOf"),
        ({**W, "oneOf": [{"required": ["days"]}]}, "oneOf"),
        ({**W, "minProperties": 2}, "minProperties"),
        ({**W, "maxProperties": 1}, "maxProperties"),
        ({**W, "required": ["none"]}, "required"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "additionalProperties"),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, "patternProperties"),
        ({"$ref": "#/$defs/none"}, "$ref"),
        ({**W, "minProperties": "1"}, "minProperties"),
        ({**W, "maxProperties": []}, "maxProperties"),
        ({"$ref": "#/x", "x": {"properties": {"a": 5}}}, "properties"),
        (
            {
                "$ref": "#/$defs/0",
                "$defs": {
                    **{str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(9)},
                    "9": {"required": ["a"]},
                },
            },
            "$ref",
        ),
        (
            {
                "allOf": [{"properties": {}} for _ in range(1000)],
                "required": [f"a{n}" for n in range(1000)],
            },
            "allOf",
        ),
    ],
)
def test_what_a_list_cannot_follow_is_named(schema: dict[str, Any], keyword: str) -> None:
    assert listed(schema).left_out == (keyword,)


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop: dict[str, Any] = {"allOf": [{"$ref": "#"}, W]}
    assert listed(loop).properties == W["properties"]


def test_parts_that_say_nothing_of_arguments_do_not_count() -> None:
    properties: dict[str, Any] = {f"a{number}": {} for number in range(1000)}
    found = listed({"allOf": [{"description": "x"} for _ in range(1000)], "properties": properties})
    assert (list(found.properties), found.left_out) == (list(properties), ())
