"""Numbers and model output as people read them."""

from __future__ import annotations

import math
import re

UNKNOWN = "–"

# Fenced blocks (also one still open at the end of a growing text) and inline code.
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)


def duration(seconds: float | None) -> str:
    """Three digits at most: ``850 µs``, ``8.4 ms``, ``120 ms``, ``2.5 s``, ``75 s``."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{_short(seconds * 1000)} ms"
    return f"{_short(seconds)} s"


def number(value: float) -> str:
    """``0``, ``0.3``, ``42``, ``1,250``."""
    if math.isnan(value):
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == round(value) else _short(value)


def percent(ratio: float) -> str:
    return UNKNOWN if math.isnan(ratio) else f"{_short(ratio * 100)} %"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def plain_markdown(text: str) -> str:
    """Model output for a Markdown renderer: a dollar sign is money and not the start of a
    formula, and an image is not fetched from wherever the model says. Code is left alone."""
    parts = _CODE.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = parts[index].replace("$", r"\$").replace("![", r"!\[")
    return "".join(parts)
