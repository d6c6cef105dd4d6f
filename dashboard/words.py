"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "–"
MOST_DECIMALS = 3


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
