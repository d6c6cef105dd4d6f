"""Numbers and model output as people read them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

UNKNOWN = "–"
MOST_DECIMALS = 3

_INLINE_CODE = re.compile(r"(`[^`]*`)")
_DOLLAR = re.compile(r"(?<!\\)((?:\\\\)*)\$")
# A formula in \( \), \[ \], $$ $$, or in $ $ if it cannot be money: no letter or digit outside the
# dollars, no space at their insides, and a sign within that prices do not have.
_MATH = re.compile(
    r"\\\((?P<inline>[^$]{1,400}?)\\\)|\\\[(?P<block>[^$]{1,400}?)\\\]"
    r"|\$\$(?P<double>[^$]{1,400}?)\$\$"
    r"|(?<![\\$\w])\$(?P<single>[A-Za-z]|(?=[^$]*[\\^_=+{])[^\s$](?:[^$]{0,398}[^\s$\\])?)\$(?![\w$])"
)
# A fence that is one for certain: at the very beginning of a line, and no container around it.
_FENCE = re.compile(r"(?P<mark>`{3,})[^`]*$|(?P<other>~{3,})")
# What else may begin or end a block, or hold text that is not Markdown. (``:::`` ends Streamlit's
# own blocks, also inside a fence.)
_UNSURE = re.compile(r"```|~~~|:::|^\W*<")


def duration(seconds: float | None, digits: int = 3) -> str:
    """Milliseconds below a second, seconds above: ``0.850 ms``, ``8.40 ms``, ``120 ms``,
    ``2.50 s``, ``75.0 s``. Minutes are not used, so that lengths compare at a glance."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if _rounded(seconds, digits) < 1:
        return f"{number(seconds * 1000, digits)} ms"
    return f"{number(seconds, digits)} s"


def age(seconds: float) -> str:
    """How long something has lasted: ``45 s``, ``32 min 9 s``, ``5 h 12 min``, ``3 d 4 h``. As
    ``sinceWords`` in drawing/common.js."""
    whole = max(0, math.floor(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole} s"
    if not hours:
        return f"{minutes} min {whole % 60} s"
    return f"{hours} h {minutes % 60} min" if not days else f"{days} d {hours % 24} h"


def number(value: float, digits: int = 3) -> str:
    """A measured value: as many digits as are significant, so that its width does not change from
    second to second: ``0``, ``0.300``, ``42.1``, ``1,250``."""
    if math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = _rounded(value, digits)
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded if decimals >= 0 else value:,.{min(max(decimals, 0), MOST_DECIMALS)}f}"


def count(value: float) -> str:
    """Of things that come in whole numbers: ``7``, ``1,250``."""
    return UNKNOWN if math.isnan(value) else f"{value:,.0f}"


def in_full(value: float) -> str:
    """A setting's value, which nothing may be left out of: ``0.001``, ``2``, ``1,000,000``."""
    return f"{value:,.12g}" if abs(value) < 1e12 else f"{value:g}"


def percent(ratio: float) -> str:
    return UNKNOWN if math.isnan(ratio) else f"{number(ratio * 100)} %"


def text_only(unserved: Sequence[str]) -> str:
    """``unserved``: inputs that a checkpoint reads and the server does not take: ``text only, no
    image or video``. Empty if there are none."""
    return f"text only, no {' or '.join(unserved)}" if unserved else ""


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def plain_markdown(text: str) -> str:
    """Model output for a Markdown renderer: a formula is one, any other dollar sign is money, and
    no image is fetched from wherever the model says.

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
        parts[index] = _with_formulas(parts[index])
    return "".join(parts).replace("![", r"!\[")


def _with_formulas(text: str) -> str:
    """Formulas in dollars, as the renderer knows them; every other dollar is one."""
    done, at = [], 0
    for found in _MATH.finditer(text):
        done.append(_DOLLAR.sub(r"\1\\$", text[at : found.start()]))
        mark = "$$" if found["block"] or found["double"] else "$"
        formula = next(filter(None, found.groups()))
        done.append(f"{mark}{formula.strip()}{mark}")
        at = found.end()
    done.append(_DOLLAR.sub(r"\1\\$", text[at:]))
    return "".join(done)
