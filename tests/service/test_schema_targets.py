"""Where references lead."""

from __future__ import annotations

from typing import Any

import pytest

from service.schema_targets import outside_reference, steps_of, target_of, with_pointers

ROOT: dict[str, Any] = {"$defs": {"My Int": 1, "L[int]": 2, "a/b~": 3, "größe": 4}, "anyOf": [5]}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/My%20Int", 1),
        ("#/$defs/My Int", 1),
        ("#/$defs/L%5Bint%5D", 2),
        ("#/$defs/a~1b~0", 3),
        ("#/$defs/a%2Fb%7E0", None),
        ("#/$defs/gr%C3%B6%C3%9Fe", 4),
        ("#/anyOf/0", 5),
        ("#/anyOf/1", None),
        ("#/anyOf/" + "1" * 5000, None),
        ("#/none/x", None),
        ("#name", None),
        ("https://a.b/c#/$defs/x", None),
    ],
)
def test_a_reference_leads_into_its_own_schema(reference: str, target: Any) -> None:
    assert target_of(reference, ROOT) == target


def test_the_steps_of_a_pointer_are_keys() -> None:
    assert steps_of("#/parts/a~1b%20c") == ["parts", "a/b c"]
    assert steps_of("#") == []
    assert steps_of("#name") is None


@pytest.mark.parametrize(
    ("reference", "written"),
    [
        ("#city", "#/$defs/a%20b"),
        ("#old", "#/$defs/gr%C3%B6%C3%9Fe"),
        ("#/$defs/größe", "#/$defs/gr%C3%B6%C3%9Fe"),
        ("#/$defs/a b", "#/$defs/a%20b"),
        ("#/$defs/L[int]", "#/$defs/L%5Bint%5D"),
        ("#/$defs/100%", "#/$defs/100%25"),
        ("#/$defs/a%20b", "#/$defs/a%20b"),
        ("#none", "#none"),
        ("#", "#"),
        ("https://a.b/c#d", "https://a.b/c#d"),
    ],
)
def test_references_are_written_as_pointers(reference: str, written: str) -> None:
    defs = {"a b": {"$anchor": "city"}, "größe": {"$id": "#old"}, "L[int]": {}, "100%": {}}
    root = {"items": [{"$ref": reference}], "$defs": defs}
    found = with_pointers(root)
    assert found == {"items": [{"$ref": written}], "$defs": defs}
    assert (found is root) == (written == reference != "#none")


def test_a_schema_with_other_bases_keeps_its_anchors() -> None:
    root = {"items": {"$ref": "#a"}, "$defs": {"x": {"$id": "https://a.b/c", "$anchor2": "a"}}}
    assert with_pointers(root) is root


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"p": {"$ref": "http://x/y"}}}, "properties.p.$ref"),
        ({"anyOf": [{"$ref": "#/$defs/a"}, {"items": {"$ref": "b"}}]}, "anyOf.1.items.$ref"),
        ({"$ref": "a.json"}, "$ref"),
        ({"items": [{}, {"$ref": "b"}], "additionalItems": {"$ref": "c"}}, "items.1.$ref"),
        (
            {
                "properties": {
                    "a": {"$ref": "http://real/x"},
                    "b": {"default": {"$ref": "zz"}, "const": {"$ref": "yy"}},
                }
            },
            "properties.a.$ref",
        ),
        ({"enum": [{"$ref": "a"}], "examples": [{"$ref": "b"}], "not": {"$ref": "c"}}, None),
        ({"properties": {"default": {"$ref": "a"}}}, "properties.default.$ref"),
        (True, None),
        ({"properties": {"$ref": {"type": "string"}}, "items": {"$ref": "#"}}, None),
    ],
)
def test_the_path_of_a_reference_to_another_document(schema: Any, path: str | None) -> None:
    assert outside_reference(schema) == path
