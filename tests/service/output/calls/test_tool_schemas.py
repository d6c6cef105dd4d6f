"""What a tool's schema says about values, and what is left of it for parsers."""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import pytest

from service.formats import shipped_formats
from service.output.calls.tool_schemas import (
    in_schema,
    parameter_types,
    property_names,
    reduced,
    schema_types,
    types_of_parameters,
)
from tests.service.constraint.shipped import form
from tests.service.output.parsing import parse, summary

TREE: dict[str, Any] = {
    "allOf": [{"$ref": "#/$defs/Node"}],
    "$defs": {
        "Node": {
            "description": "A node",
            "properties": {
                "name": {"type": "string", "maxLength": 5},
                "count": {"$ref": "#number"},
                "sizes": {"type": "array", "items": {"$ref": "#/$defs/My%20Int"}},
                "children": {"type": ["array", "null"], "items": {"$ref": "#/$defs/Node"}},
                "a-b": {},
                "unit": {"anyOf": [{"enum": ["a"]}, {"type": "null"}]},
                "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
                "more": {"additionalProperties": {"type": "boolean"}},
            },
        },
        "My Int": {"$anchor": "number", "type": "int"},
    },
}


def types(root: dict[str, Any], *path: str | int) -> set[str]:
    part: Any = root
    for step in path:
        part = in_schema(part, step, root)
    return set(schema_types(part, root))


@pytest.mark.parametrize(
    "form_of", [lambda schema: schema, lambda schema: reduced({"f": schema})["f"]]
)
def test_types_are_found_at_any_depth_also_in_the_reduced_schema(form_of: Any) -> None:
    schema = form_of(TREE)
    assert types(schema, "name") == {"string"}
    assert types(schema, "sizes", 3) == {"integer"}
    assert types(schema, "children", 0, "children", 0, "sizes", 0) == {"integer"}
    assert types(schema, "unit") == {"string", "null"} == set(parameter_types(schema, "unit"))
    assert (types(schema, "pair", 0), types(schema, "pair", 1)) == ({"integer"}, {"string"})
    assert types(schema, "more", "x") == {"boolean"}
    assert types(schema, "a-b") == types(schema, "none") == set()
    assert parameter_types(None, "a") == frozenset()


@pytest.mark.parametrize(
    "form_of", [lambda schema: schema, lambda schema: reduced({"f": schema})["f"]]
)
def test_a_property_that_is_only_described_again_keeps_its_type(form_of: Any) -> None:
    schema = form_of(
        {
            "$defs": {"Base": {"properties": {"n": {"type": "integer"}}}},
            "allOf": [{"$ref": "#/$defs/Base"}],
            "properties": {"n": {"description": "How many"}, "s": {"type": "string"}},
        }
    )
    assert (types(schema, "n"), types(schema, "s")) == ({"integer"}, {"string"})


def test_the_names_of_properties_are_found_through_references_and_unions() -> None:
    root: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/$defs/one"}},
        "allOf": [{"properties": {"b": {}, "a": {}}}],
        "$defs": {"one": {"anyOf": [{"properties": {"c": {}}}, {"type": "null"}, True]}},
    }
    for schema in (root, reduced({"f": root})["f"]):
        assert property_names(schema, schema) == ["a", "b"]
        assert property_names(in_schema(schema, "a", schema), schema) == ["c"]
    assert property_names(None, None) == property_names({"properties": 5}, {}) == []


def test_anchors_are_followed() -> None:
    assert parameter_types(reduced({"f": TREE})["f"], "count") == {"integer"}


def test_a_reduced_schema_has_the_names_in_their_order_and_no_prose() -> None:
    found = reduced({"f": TREE, "g": None, "h": {}})
    assert found["f"] is not None
    assert list(found["f"]["properties"]) == list(TREE["$defs"]["Node"]["properties"])
    assert "A node" not in json.dumps(found)
    assert (found["g"], found["h"]) == (None, None)


@pytest.mark.parametrize(
    "hostile",
    [
        {
            "properties": {
                f"p{index}": {"type": "object", "properties": {"a": {}}} for index in range(50_000)
            }
        },
        {
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 2000}},
            "properties": {f"p{index}": {"allOf": [{"$ref": "#/$defs/a"}]} for index in range(200)},
        },
        {
            "$defs": {"a": {"properties": {f"p{index}": {"items": {}} for index in range(450)}}},
            "properties": {
                f"x{index}": {"allOf": [{"$ref": "#/$defs/a"}], "properties": {}}
                for index in range(450)
            },
        },
        {"allOf": [{}], "properties": {"a": {"$ref": f"#/allOf/{'1' * 5000}"}}},
        {
            "$defs": {"a": {"prefixItems": [{}] * 20_000}},
            "properties": {f"x{index}": {"allOf": [{"$ref": "#/$defs/a"}]} for index in range(50)},
        },
    ],
    ids=["wide", "circular", "shared", "digits", "items"],
)
def test_a_reduced_schema_has_bounds(hostile: dict[str, Any]) -> None:
    gc.disable()  # a collection looks at all that other tests have left in this process
    try:
        began = time.process_time()
        found = reduced({"f": hostile})
        taken = time.process_time() - began
    finally:
        gc.enable()
    assert taken < 2
    assert len(json.dumps(found)) < 2_000_000


ITEMS = {"type": "array", "items": {"type": "integer"}}
NESTED = {
    "type": "object",
    "properties": {
        "xs": ITEMS,
        "o": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}, "xs": ITEMS},
        },
    },
}


@pytest.mark.parametrize(
    ("family", "schema", "text", "arguments"),
    [
        (
            "minimax_m3",
            NESTED,
            "<xs>^<item>1^</item>^<item>2^</item>^</xs>^<o>^<n>5^</n>^<ok>true^</ok>"
            "^<xs>^<item>3^</item>^</xs>^</o>",
            {"xs": [1, 2], "o": {"n": 5, "ok": True, "xs": [3]}},
        ),
        (
            "lfm2",
            {"properties": {"value": {}, "unit": {"type": "string"}, "a-b": {}}},
            '[f(5, "km", a-b=3)]',
            {"value": 5, "unit": "km", "a-b": 3},
        ),
        (
            "gemma4",
            {"properties": {"at": {"type": "object", "properties": {"zip": {"type": "string"}}}}},
            "{at:{zip:123}}",
            {"at": {"zip": "123"}},
        ),
    ],
)
def test_a_reduced_schema_is_enough_for_every_parser(
    family: str, schema: dict[str, Any], text: str, arguments: dict[str, Any]
) -> None:
    [shipped] = [each for each in shipped_formats("tool_calls") if each.names[0] == family]
    body: Any = shipped.calls.body if shipped.calls else None
    whole = shipped.calls.open + WRAP[family](body, text) + shipped.calls.close
    found = summary(parse([whole], form(shipped), reduced({"f": schema})))
    assert [json.loads(entry[1]) for entry in found if entry[0] == "arguments"] == [arguments]


WRAP: dict[str, Any] = {
    "minimax_m3": lambda body, text: f'^{body.call_open}"f">^{text}^{body.call_close}'.replace(
        "^", body.mark
    ),
    "lfm2": lambda body, text: text,
    "gemma4": lambda body, text: f"{body.call_open}f{text}",
}


class Counted(dict[str, Any]):
    """Counts how often it is read."""

    reads = 0

    def get(self, *of: Any) -> Any:
        self.reads += 1
        return super().get(*of)


def test_the_types_of_many_arguments_cost_as_much_as_those_of_one() -> None:
    def reads(count: int) -> int:
        properties = {f"{number}": {"type": "string"} for number in range(count)}
        part = Counted(description="x")
        schema = {"allOf": [part], "properties": properties, "additionalProperties": {"type": "no"}}
        found = types_of_parameters(schema, [*properties, "other"])
        assert found == {name: parameter_types(schema, name) for name in found}
        part.reads = 0
        types_of_parameters(schema, [*properties, "other"])
        return part.reads

    assert reads(1) == reads(100) > 0


def test_a_reference_to_itself_is_followed_a_few_times() -> None:
    loop = Counted({"$ref": "#/$defs/loop"})
    assert reduced({"f": {"properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": loop}}})
    assert loop.reads < 100


def test_what_recurs_in_two_schemas_of_one_value_is_written_once() -> None:
    definitions = {name: {"properties": {"x": {"$ref": f"#/$defs/{name}"}}} for name in "AB"}
    both = [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]
    found = reduced({"f": {"allOf": both, "$defs": definitions}})["f"]
    assert found is not None
    assert len(found["$defs"]) == 1
    assert schema_types(in_schema(found, "x", found), found) == {"object"}
