"""Bounds that are not allowed values themselves (``exclusiveMinimum``), as the library needs them.

The library reads a range from a whole number to a fraction above it, such as ``0 < x <= 0.5``, as
if the whole number were allowed; below zero, likewise for ``-0.5 <= x < 0``. Subschemas of one
value are combined only by the library, so any such bound could become part of such a range.
"""

from __future__ import annotations

from typing import Any

# The library reads longer numbers with a small error, and powers of ten below 1e-22, too.
_DIGITS = 15
_SMALLEST = 1e-22


def without_open_whole_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which such bounds are replaced by a number that is allowed, so close that
    none between the two matters. The library reads those of integers correctly."""
    if schema.get("type") == "integer":
        return schema
    for keyword, exclusive, sign in (
        ("minimum", "exclusiveMinimum", 1),
        ("maximum", "exclusiveMaximum", -1),
    ):
        # In draft 4, True says how to read the other keyword.
        stated, open_bound = _number(schema.get(keyword)), _number(schema.get(exclusive))
        bound = stated if schema.get(exclusive) is True else open_bound
        if bound is None or not _begins_fractions(sign * bound):
            continue
        allowed = _next_above(sign * bound)
        if stated is not None:
            allowed = max(allowed, sign * stated)
        others = {name: value for name, value in schema.items() if name != exclusive}
        schema = {**others, keyword: sign * allowed}
    return schema


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _begins_fractions(bound: float) -> bool:
    """True for whole numbers from zero on, as far as there is room for a fraction after them."""
    return 0 <= bound < 10 ** (_DIGITS - 1) and bound == int(bound)


def _next_above(bound: float) -> float:
    whole = int(bound)
    return float(f"{whole}.{'1':0>{_DIGITS - len(str(whole))}}") if whole else _SMALLEST
