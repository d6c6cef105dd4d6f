"""Bare text of arguments as JSON of the types that a schema tells."""

from __future__ import annotations

import pytest

from service.generation.calls.coercion import to_json


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "1e400", "9" * 5000])
@pytest.mark.parametrize("types", [{"integer"}, {"number"}, {"integer", "null"}])
def test_a_number_beyond_any_float_ends_no_request(text: str, types: set[str]) -> None:
    told = to_json(text, frozenset(types), untyped_json=False)
    assert told in (text, f'"{text}"')


def test_a_long_integer_keeps_its_digits() -> None:
    assert to_json("9" * 400, frozenset({"integer"}), untyped_json=False) == "9" * 400
