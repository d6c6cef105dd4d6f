"""Whether a value that was read from JSON can be sent and shown."""

from __future__ import annotations

import math
import re
from typing import Any

MOST_LEVELS = 100
"""Python's JSON writers call themselves for each level, and can do so a few hundred times."""

# UTF-8 cannot express one; JSON can, as an escape.
_HALF = re.compile("[\ud800-\udfff]")


def unsendable(value: Any) -> str:
    """What is wrong with it, in words; empty if it can be sent."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        wrong = next(filter(None, map(_wrong, level)), "")
        if wrong:
            return wrong
        level = [part for one in level for part in _parts(one)]
        if not level:
            return ""
    return f"nested more than {MOST_LEVELS} levels deep"


def _wrong(one: Any) -> str:
    if isinstance(one, float) and not math.isfinite(one):
        return "NaN and infinite numbers are not valid JSON"
    half = _HALF.search(one) if isinstance(one, str) else None
    return f"\\u{ord(half[0]):04x} is half of a surrogate pair; write both" if half else ""


def _parts(one: Any) -> list[Any]:
    if isinstance(one, dict):
        return [*one, *one.values()]
    return one if isinstance(one, list) else []
