from __future__ import annotations

import base64
import re

import pytest

from dashboard.board import PHASE_COLORS
from dashboard.phase_bar import _HEX, longest_phase, phase_bar
from observability.admin_api import KeptRequest
from observability.phases import PHASES


def kept(phases: dict[str, float], **times: float) -> KeptRequest:
    return KeptRequest(request_id="r", received=0.0, route="x", phases=phases, **times)  # type: ignore[arg-type]


def drawn(bar: str) -> str:
    return base64.b64decode(bar.partition(",")[2]).decode()


def widths(bar: str) -> list[float]:
    found = re.findall(r'<rect x="[\d.]+" width="([\d.]+)"', drawn(bar))
    return [float(width) for width in found]


def test_widths_are_in_proportion_to_the_times() -> None:
    shown = widths(phase_bar(kept({"queue": 3.0, "decode": 1.0}, total=4.0), 0.5, 200))
    assert [width for width in shown if width] == [75.0, 25.0]
    assert sum(widths(phase_bar(kept({}, total=0.0)))) == 0


def test_time_in_no_phase_is_hatched() -> None:
    refused = kept({"receive": 0.6, "admit": 0.4}, total=10.0, other=9.0)
    assert [width for width in widths(phase_bar(refused, width=100)) if width] == [6.0, 4.0, 90.0]
    assert 'width="90.00" height="29" fill="url(#other)"' in drawn(phase_bar(refused, width=100))


def test_writes_that_overlap_the_answer_stay_within_the_bar() -> None:
    overlapping = kept({"decode": 8.0, "flush": 6.0}, total=10.0, other=2.0)
    shown = widths(phase_bar(overlapping, width=160))
    assert [width for width in shown if width] == [80.0, 60.0, 20.0]


def test_the_longest_phase_is_named() -> None:
    assert longest_phase({"queue": 3.9, "decode": 1.0}) == "queue 3.90 s"
    assert longest_phase({}) == ""


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_each_phase_has_its_colour(phase: object) -> None:
    assert PHASE_COLORS[getattr(phase, "name", "")] in _HEX
