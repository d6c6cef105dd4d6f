"""Readings become lines that break where nothing is known."""

from __future__ import annotations

import dataclasses
import math

from dashboard.charts import SPAN_SECONDS, Chart, Line, columns, specification
from dashboard.reading import Reading, read
from dashboard.series import History
from dashboard.views.live import CHARTS

CHART = Chart(
    "Sequences",
    "sequences",
    (
        Line("running", "#000000", lambda reading: reading.running),
        Line("waiting", "#ffffff", lambda reading: reading.waiting_total),
    ),
)


def reading(time: float, running: float = 1.0) -> Reading:
    return dataclasses.replace(read(time, History(60)), running=running)


def line(name: str, *readings: Reading, now: float) -> list[tuple[float, float | None]]:
    table = columns(CHART, readings, now)
    rows = zip(table["age"], table["line"], table["value"], strict=True)
    return [(age, value) for age, row, value in rows if row == name]


def test_a_point_stands_at_its_age() -> None:
    assert line("running", reading(98, 3), reading(99, 4), now=100) == [(-2, 3), (-1, 4)]


def test_what_is_older_than_the_chart_is_left_out() -> None:
    points = line("running", reading(1), reading(SPAN_SECONDS + 2), now=SPAN_SECONDS + 2)
    assert points == [(0, 1)]


def test_a_line_breaks_over_a_time_without_readings() -> None:
    points = line("running", reading(0), reading(1), reading(61), reading(62), now=62)
    assert points == [(-62, 1), (-61, 1), (-31, None), (-1, 1), (0, 1)]


def test_a_number_that_is_not_known_breaks_the_line() -> None:
    assert line("running", reading(0, math.nan), now=0) == [(0, None)]
    assert line("waiting", reading(0), now=0) == [(0, None)]


def test_every_line_has_a_colour_of_its_own() -> None:
    for chart in CHARTS:
        assert len({line.color for line in chart.lines}) == len(chart.lines)
        assert len({line.name for line in chart.lines}) == len(chart.lines)


def test_charts_of_one_line_need_no_legend() -> None:
    for chart in CHARTS:
        color = specification(chart)["layer"][0]["encoding"]["color"]
        assert (color["legend"] is None) == (len(chart.lines) == 1)
