"""The alert rules as a file of the chart, with marks in place of the objectives.

The template replaces the marks by the values ``slo.ttft`` and ``slo.itl``.
"""

from __future__ import annotations

import re

from observability.alerts.files import rules_text
from observability.objectives import Objectives

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)")
# Objectives other than the defaults, to see where the rules have them: whole seconds, because only
# a bound is then written with a decimal point.
_OTHER = {"ttft": 5.0, "itl": 5.0}


def marked_rules() -> str:
    """Return the rules with ``@ttft@`` and ``@itl@`` for an objective, and ``@ttft.bound@`` and
    ``@itl.bound@`` where it is a bucket's bound."""
    text = rules_text(Objectives())
    lines = text.splitlines()
    for name, seconds in _OTHER.items():
        others = rules_text(Objectives(**{name: seconds})).splitlines()
        lines = [
            line if default == other else _marked(line, default, other, name, seconds)
            for line, default, other in zip(lines, text.splitlines(), others, strict=True)
        ]
    return "\n".join(lines) + "\n"


def _marked(line: str, default: str, other: str, name: str, seconds: float) -> str:
    """``default`` and ``other``: the line with the default objective and with ``seconds``."""
    if line != default:
        raise ValueError(f"a rule has both objectives: {line}")
    parts = [
        was if was == now else _mark(now, name, seconds)
        for was, now in zip(_NUMBER.split(default), _NUMBER.split(other), strict=True)
    ]
    return "".join(parts)


def _mark(now: str, name: str, seconds: float) -> str:
    marks = {f"{seconds:g}": f"@{name}@", str(float(seconds)): f"@{name}.bound@"}
    return marks[now]
