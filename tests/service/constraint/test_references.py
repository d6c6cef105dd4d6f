"""Where a schema's references lead, and which keywords are next to them."""

from __future__ import annotations

from typing import Any

import pytest

from service.constraint.references import circular_references, steps_of_references


def tree(child: dict[str, Any]) -> dict[str, Any]:
    node = {"type": "object", "properties": {"a/b": {"items": [child]}}}
    return {"$defs": {"N": node}, "$ref": "#/$defs/N"}


@pytest.mark.parametrize("keyword", ["type", "required", "not", "properties"])
def test_a_reference_that_leads_back_with_a_restriction_is_found(keyword: str) -> None:
    child = {"$ref": "#/$defs/N", keyword: {}}
    assert circular_references(tree(child)) == {id(child)}
    again = {"$ref": "#/$defs/N/properties/a~1b/items/0", keyword: {}}
    assert circular_references(tree(again)) == {id(again)}


def test_a_reference_alone_or_one_that_ends_is_not() -> None:
    assert not circular_references(tree({"$ref": "#/$defs/N", "title": "t"}))
    assert not circular_references(tree({"$ref": "#/$defs/M", "type": "object"}))
    assert not circular_references(tree({"$ref": "https://a.b/c", "type": "object"}))
    assert not circular_references(tree({"$ref": "#/$ref/x", "type": "object"}))
    outside = {**tree({"$ref": "#/$defs/N"}), "type": "object"}
    assert not circular_references(outside)


def test_the_search_ends_for_a_schema_with_many_references() -> None:
    one = {"$ref": "#/$defs/N", "type": "object"}
    node = {"properties": {f"p{index}": dict(one) for index in range(5000)}}
    assert circular_references({"$defs": {"N": node}, **one})


def test_definitions_may_be_kept_anywhere() -> None:
    schema = {"$ref": "#/parts/a~1b%20c", "items": [{"$ref": "#"}]}
    assert steps_of_references(schema) == {"parts", "a/b c"}
