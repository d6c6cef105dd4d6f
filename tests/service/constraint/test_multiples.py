"""Numbers that ``multipleOf`` allows within bounds. The oracle is what compiled grammars accept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from service.constraint.multiples import with_only_multiple
from service.constraint.schema import enforceable
from tests.service.constraint.grammars import enforced


@pytest.mark.parametrize(
    ("least", "most", "step", "only"),
    [
        (-2.25, -2.15, 0.1, "-2.2"),
        (2.15, 2.25, 0.2, "2.2"),
        (0.6, 0.6, 0.2, "0.6"),
        (0.53, 0.63, 0.2, "0.6"),
        (-4.706, -4.406, 0.25, "-4.5"),
        (0.414, 0.564, 0.25, "0.5"),
        (-0.3, 0.3, 0.5, "0"),
        (6.5, 7.5, 7, "7"),
    ],
)
def test_a_range_with_a_single_multiple_allows_it(
    least: float, most: float, step: float, only: str
) -> None:
    number = {"type": "number", "minimum": least, "maximum": most, "multipleOf": step}
    schema = enforceable({"properties": {"n": number}, "required": ["n"]}, "p").schema
    assert enforced(schema, f'{{"n": {only}}}')
    for other in (Decimal(only) + Decimal(str(step)), Decimal(only) - Decimal(str(step)), least):
        assert Decimal(only) == Decimal(str(other)) or not enforced(schema, f'{{"n": {other}}}')


@pytest.mark.parametrize(
    ("bounds", "value"),
    [
        ({"exclusiveMinimum": 0.1, "maximum": 0.2}, 0.2),
        ({"minimum": 0.1, "exclusiveMaximum": 0.2}, 0.1),
        ({"minimum": 0, "exclusiveMinimum": 0.15, "maximum": 0.9, "exclusiveMaximum": 0.21}, 0.2),
        ({"exclusiveMinimum": -0.1, "exclusiveMaximum": 0.1}, 0),
    ],
)
def test_bounds_may_be_exclusive(bounds: dict[str, Any], value: float) -> None:
    schema = {"type": "number", "multipleOf": 0.1, "title": "n", **bounds}
    assert with_only_multiple(schema) == {"type": "number", "title": "n", "enum": [value]}


@pytest.mark.parametrize(
    "changed",
    [
        *({"maximum": 0.3}, {"maximum": 0.12}, {"maximum": None}, {"multipleOf": 0}),
        *({"type": "integer"}, {"type": ["number", "null"]}, {"enum": [0.2]}, {"const": 0.2}),
        *({"exclusiveMinimum": True}, {"multipleOf": True}, {"maximum": float("inf")}),
        {"minimum": 2**60, "maximum": 2**60, "multipleOf": 1},
        {"multipleOf": 10**5000, "minimum": 1.5, "maximum": 10**4000},
    ],
    ids=lambda changed: ",".join(changed),
)
def test_any_other_schema_is_kept(changed: dict[str, Any]) -> None:
    schema = {"type": "number", "minimum": 0.15, "maximum": 0.25, "multipleOf": 0.1, **changed}
    assert with_only_multiple(schema) is schema
