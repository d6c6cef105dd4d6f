"""JSON schemas as terms of a grammar, nested in others and eased where none can be made."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from service.constraint.schema_grammar import eased, nested
from tests.engine.constraint.random_schemas import SchemaMaker
from tests.service.constraint.grammars import enforced

VALUE: dict[str, Any] = {"a": [1, 2.5, {"b": 'x\n"y"'}], "c": None, "d": {}, "e": [], "ü": "é😀"}


@pytest.mark.parametrize(
    "style",
    [{}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}],
    ids=str,
)
def test_json_is_welcome_in_every_usual_style(style: dict[str, Any]) -> None:
    text = json.dumps(VALUE, ensure_ascii=False, **style)
    assert enforced({"type": "object"}, text)
    assert enforced(True, text)


def test_white_space_does_not_continue_forever() -> None:
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


def test_keywords_that_make_a_grammar_impossible_are_dropped_step_by_step() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "b": {"type": "string", "pattern": "[z-a]"},
        },
        "required": ["a", "b"],
    }
    first, second = eased(schema, "s")
    assert first.paths == ["s.properties.a.oneOf"]
    assert second.paths == ["s.properties.a.oneOf", "s.properties.b.pattern"]
    assert enforced(second.schema, '{"a": 1.5, "b": "x"}')
    assert not enforced(second.schema, '{"a": "x", "b": "x"}')


def tree(**more: Any) -> dict[str, Any]:
    child = {"$ref": "#/$defs/N", **more}
    node = {"type": "object", "properties": {"v": {"type": "string"}, "child": child}}
    return {"$defs": {"N": node}, "$ref": "#/$defs/N"}


@pytest.mark.parametrize("keyword", ["nullable", "x-order", "example", "deprecated", "readOnly"])
def test_an_annotation_next_to_a_recursive_reference_changes_nothing(keyword: str) -> None:
    schema = tree(**{keyword: True})
    assert enforced(schema, '{"v": "a", "child": {"child": {}}}')
    assert not enforced(schema, '{"child": {"child": {"v": 1}}}')
    assert list(eased(schema, "s")) == []


def test_definitions_next_to_a_reference_are_kept_whatever_they_are_called() -> None:
    schema = {"$ref": "#/parts/N", "parts": {"N": {"type": "integer"}}, "x-order": 1}
    assert enforced(schema, "5")
    assert not enforced(schema, '"a"')


def test_restrictions_next_to_a_recursive_reference_are_left_out_first() -> None:
    schema = tree(required=["v"], title="t", minProperties=1)
    schema["$defs"]["M"] = {"pattern": "a"}
    only, _ = eased(schema, "s")
    place = "s.$defs.N.properties.child"
    assert only.paths == [f"{place}.required", f"{place}.minProperties"]
    assert enforced(only.schema, '{"child": {"v": "a", "child": {}}}')


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_limit_on_properties_is_left_out_where_no_grammar_can_count_them(keyword: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "maxProperties": 1,
        keyword: [{"required": ["a"]}, {"required": ["b"]}],
    }
    *_, last = eased(schema, "s")
    assert last.paths == [*(["s.oneOf"] * (keyword == "oneOf")), "s.maxProperties"]
    assert enforced(last.schema, '{"a": "x"}')
    assert not enforced(last.schema, "{}")
