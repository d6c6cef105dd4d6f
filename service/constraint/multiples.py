"""Numbers that ``multipleOf`` allows within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

_LARGEST_EXACT = 2**53
# By keyword: the first and the last whole number that a bound, which need not be one, allows.
_FIRST: dict[str, Callable[[Fraction], int]] = {
    "minimum": math.ceil,
    "exclusiveMinimum": lambda bound: math.floor(bound) + 1,
}
_LAST: dict[str, Callable[[Fraction], int]] = {
    "maximum": math.floor,
    "exclusiveMaximum": lambda bound: math.ceil(bound) - 1,
}
_KEYWORDS = ("multipleOf", *_FIRST, *_LAST)


def with_only_multiple(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that lists the number if its own keywords allow a single one. The library
    computes with doubles, and finds none in a range such as -2.25 to -2.15 for 0.1."""
    exact = {keyword: _exact(schema[keyword]) for keyword in _KEYWORDS if keyword in schema}
    step = exact.get("multipleOf")
    if schema.get("type") != "number" or schema.keys() & {"enum", "const"} or not step:
        return schema
    steps = {keyword: bound / step for keyword, bound in exact.items() if bound is not None}
    first = max((_FIRST[key](steps[key]) for key in steps.keys() & _FIRST), default=None)
    last = min((_LAST[key](steps[key]) for key in steps.keys() & _LAST), default=None)
    if first is None or first != last or None in exact.values():
        return schema
    only = first * step
    if only.denominator == 1 and abs(only) > _LARGEST_EXACT:
        return schema
    others = {keyword: value for keyword, value in schema.items() if keyword not in _KEYWORDS}
    return {**others, "enum": [int(only) if only.denominator == 1 else float(only)]}


def _exact(value: Any) -> Fraction | None:
    """Return a number as it is written in decimals; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    return Fraction(str(value)) if isinstance(value, float) and math.isfinite(value) else None
