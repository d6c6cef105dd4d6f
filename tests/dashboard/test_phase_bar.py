from __future__ import annotations

import base64
import re

import pytest

from dashboard.board import PHASE_COLORS
from dashboard.phase_bar import _HEX, longest_phase, phase_bar
from observability.phases import PHASES


def widths(bar: str) -> list[float]:
    drawing = base64.b64decode(bar.partition(",")[2]).decode()
    return [float(width) for width in re.findall(r'<rect x="[\d.]+" width="([\d.]+)"', drawing)]


def test_widths_are_in_proportion_to_the_times() -> None:
    shown = widths(phase_bar({"queue": 3.0, "decode": 1.0}, 0.5, 200))
    assert [width for width in shown if width] == [75.0, 25.0]
    assert sum(widths(phase_bar({}, 1.0))) == 0


def test_the_longest_phase_is_named() -> None:
    assert longest_phase({"queue": 3.9, "decode": 1.0}) == "queue 3.90 s"
    assert longest_phase({}) == ""


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_each_phase_has_its_colour(phase: object) -> None:
    assert PHASE_COLORS[getattr(phase, "name", "")] in _HEX
