"""Bounds that are not allowed values themselves. The oracle is what compiled grammars accept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.constraint.open_bounds import without_open_whole_bounds
from service.constraint.schema import enforceable
from tests.examples import examples
from tests.service.constraint.grammars import enforced


def allows(schema: dict[str, Any], text: str) -> bool:
    return enforced(enforceable(schema, "p").schema, text)


@pytest.mark.parametrize(
    ("bounds", "refused", "allowed"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, "0 -0 0.0 0.51", "0.5 0.1 0.001"),
        ({"exclusiveMinimum": 0, "maximum": 1}, "0 0.0 1.1", "0.5 1 1.0"),
        ({"exclusiveMinimum": 0}, "0 0.00 -1", "0.5 1 17.25"),
        ({"exclusiveMinimum": 10, "maximum": 10.1}, "10 10.0 9.9 10.2", "10.1 10.05"),
        ({"exclusiveMinimum": 99, "multipleOf": 0.01}, "99 99.00 99.005", "99.01 100"),
        ({"exclusiveMinimum": 0, "maximum": 0.5, "multipleOf": 0.1}, "0 0.25", "0.1 0.5"),
        ({"minimum": -0.5, "exclusiveMaximum": 0}, "-0 0 -0.0 -0.6", "-0.5 -0.25"),
        ({"minimum": -10.5, "exclusiveMaximum": -10}, "-10 -10.0 -11", "-10.5 -10.1"),
        ({"minimum": 0, "exclusiveMinimum": True, "maximum": 0.5}, "0 0.0", "0.5 0.1"),
        ({"minimum": 0.2, "exclusiveMinimum": 0, "maximum": 0.5}, "0 0.1", "0.2 0.5"),
        ({"minimum": -3, "exclusiveMinimum": 0, "maximum": 0.5}, "0 -1", "0.1 0.5"),
        ({"exclusiveMinimum": -0.0, "exclusiveMaximum": 0.5}, "0 0.5", "0.1 0.49"),
    ],
    ids=str,
)
def test_a_bound_that_is_not_allowed_is_not_written(
    bounds: dict[str, Any], refused: str, allowed: str
) -> None:
    for schema in ({"type": "number", **bounds}, {"type": ["number", "null"], **bounds}):
        assert not [text for text in refused.split() if allows(schema, text)]
        assert [text for text in allowed.split() if allows(schema, text)] == allowed.split()


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "number", "exclusiveMinimum": 0}, {"maximum": 0.5}]},
        {"$ref": "#/$defs/a", "maximum": 0.5, "$defs": {"a": {"exclusiveMinimum": 0}}},
    ],
    ids=["allOf", "ref"],
)
def test_bounds_of_several_subschemas_are_combined(schema: dict[str, Any]) -> None:
    assert not allows({"type": "number", **schema}, "0")
    assert allows({"type": "number", **schema}, "0.5")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 2},
        {"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 10**15},
        {"type": "number", "exclusiveMinimum": 10**15},
        {"type": "number", "exclusiveMinimum": True, "exclusiveMaximum": "0"},
    ],
    ids=str,
)
def test_other_bounds_are_kept(schema: dict[str, Any]) -> None:
    assert without_open_whole_bounds(schema) == schema


_NUMBERS = st.builds(
    lambda whole, digits: Decimal(f"{whole}.{digits}") if digits else Decimal(whole),
    st.sampled_from([-1000, -100, -99, -10, -1, 0, 1, 2, 9, 10, 99, 100, 1500]),
    st.sampled_from(["", "", "0", "1", "5", "9", "01", "10", "95", "000001"]),
)
_STEPS = st.sampled_from(["0", "1", "0.1", "0.5", "0.01", "0.0001", "-0.1", "-1", "-0.0001"])


@settings(max_examples=examples(100), deadline=None)
@given(
    least=_NUMBERS,
    width=st.sampled_from(["0.1", "0.5", "0.99", "1", "2.5", "0.01", "1000"]),
    open_below=st.booleans(),
    open_above=st.booleans(),
    step=_STEPS,
    places=st.sampled_from(["", "0"]),
)
def test_what_is_accepted_lies_in_the_range(
    least: Decimal, width: str, open_below: bool, open_above: bool, step: str, places: str
) -> None:
    most = least + Decimal(width)
    schema = {
        "type": "number",
        "exclusiveMinimum" if open_below else "minimum": float(least),
        "exclusiveMaximum" if open_above else "maximum": float(most),
    }
    for bound in (least, most):
        number = bound + Decimal(step)
        text = f"{number}{places}" if "." in str(number) else str(number)
        above = number > least if open_below else number >= least
        below = number < most if open_above else number <= most
        assert (above and below) or not allows(schema, text)
    assert allows(schema, f"{(least + most) / 2}")
