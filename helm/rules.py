"""The alert rules as a file of the chart, with marks in place of the objectives and where each
selector and grouping is limited to one release.

The template replaces the marks by the values ``slo.ttft`` and ``slo.itl``, and by the release's
labels.
"""

from __future__ import annotations

import re

from observability.alerts.files import rules_text
from observability.objectives import Objectives

# In a rule's expression: a series of ours, or one that every target has; what follows its name.
_SELECTOR = re.compile(r"\b(job:quire_[\w:]+|quire_\w+|process_start_time_seconds|up)\b(\{?)")
_GROUPING = re.compile(r"\b(by|on) \(([^)]*)\bjob\b")
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)")
# Objectives other than the defaults, to see where the rules have them: whole seconds, because only
# a bound is then written with a decimal point.
_OTHER = {"ttft": 5.0, "itl": 5.0}


def marked_rules() -> str:
    """Return the rules with ``@ttft@`` and ``@itl@`` for an objective, ``@ttft.bound@`` and
    ``@itl.bound@`` where it is a bucket's bound, ``@series@`` for a release's labels in each
    selector, and ``@namespace@`` before the job by which series are grouped."""
    text = rules_text(Objectives())
    lines = text.splitlines()
    for name, seconds in _OTHER.items():
        others = rules_text(Objectives(**{name: seconds})).splitlines()
        lines = [
            line if default == other else _marked(line, default, other, name, seconds)
            for line, default, other in zip(lines, text.splitlines(), others, strict=True)
        ]
    return "\n".join(_limited(line) for line in lines) + "\n"


def _limited(line: str) -> str:
    """Return the line with marks in its selectors and groupings, if it has an expression."""
    if not line.lstrip().startswith("expr: "):
        return line
    selecting = _SELECTOR.sub(_selected, line)
    return _GROUPING.sub(r"\1 (\2@namespace@job", selecting)


def _selected(found: re.Match[str]) -> str:
    name, brace = found[1], found[2]
    return f"{name}{{@series@{',' if brace else '}'}"


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
