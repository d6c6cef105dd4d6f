"""Numbers and model output as people read them."""

from __future__ import annotations

import math
import re
import textwrap

UNKNOWN = "–"

_INLINE_CODE = re.compile(r"(`[^`]*`)")
_DOLLAR = re.compile(r"(?<!\\)((?:\\\\)*)\$")
# A fence that is one for certain: at the very beginning of a line, and no container around it.
_FENCE = re.compile(r"(?P<mark>`{3,})[^`]*$|(?P<other>~{3,})")
# What else may begin or end a block, or hold text that is no Markdown. (``:::`` ends Streamlit's
# own blocks, also inside a fence.)
_UNSURE = re.compile(r"```|~~~|:::|^\W*<")


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
    """Model output for a Markdown renderer: a dollar sign is money and not the start of a formula,
    and no image is fetched from wherever the model says.

    Every image begins with ``![``, which is broken up everywhere but in fenced code. Inline code
    and fences of which we cannot be certain (in a list, say) show the backslash: what is code to us
    and not to the renderer would be fetched.
    """
    # As Streamlit does it itself, so that columns and lines are those that it will see.
    text = textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    lines: list[str] = []
    end: re.Pattern[str] | None = None  # of the fenced code that we are in
    certain = True
    for line in text.split("\n"):
        if end is not None:
            end = None if end.match(line) else end
        elif certain and (fence := _FENCE.match(line)):
            mark = fence["mark"] or fence["other"]
            end = re.compile(rf" {{0,3}}{mark}{mark[0]}*[ \t]*$")
        else:
            certain = certain and not _UNSURE.search(line)
            line = _harmless(line)
        lines.append(line)
    return "\n".join(lines)


def _harmless(line: str) -> str:
    parts = _INLINE_CODE.split(line)
    for index in range(0, len(parts), 2):
        parts[index] = _DOLLAR.sub(r"\1\\$", parts[index])
    return "".join(parts).replace("![", r"!\[")
