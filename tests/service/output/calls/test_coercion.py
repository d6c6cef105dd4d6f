"""Bare text of arguments as JSON of the types that a schema specifies."""

from __future__ import annotations

import json

import pytest

from service.output.calls.coercion import python_to_json, to_json


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "1e400", "9" * 5000])
@pytest.mark.parametrize("types", [{"integer"}, {"number"}, {"integer", "null"}])
def test_a_number_beyond_any_float_ends_no_request(text: str, types: set[str]) -> None:
    told = to_json(text, frozenset(types), untyped_json=False)
    assert told == f'"{text}"'  # its text says what no number can


@pytest.mark.parametrize("text", ["(1e400,)", "[1, 1e400]", "{'a': -1e999}", f"({'9' * 400},)"])
def test_no_value_holds_a_number_beyond_any_float(text: str) -> None:
    assert json.loads(python_to_json(text)) == text


def test_a_long_integer_keeps_its_digits() -> None:
    assert to_json("9" * 300, frozenset({"integer"}), untyped_json=False) == "9" * 300
