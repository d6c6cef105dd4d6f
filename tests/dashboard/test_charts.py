"""Readings become lines that break where nothing is known."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from dashboard import server
from dashboard.charts import COUNT, SPAN_SECONDS, Chart, Line, columns, specification
from dashboard.poller import View
from dashboard.reading import Reading, read
from dashboard.series import History
from dashboard.views.metrics_only import (
    AMBER,
    BLUE,
    CHARTS,
    DEEP_BLUE,
    GREY,
    INDIGO,
    LIGHT_BLUE,
    RED,
    TEAL,
)

CHART = Chart(
    "Sequences",
    COUNT,
    (
        Line("running", "#000000", lambda reading: reading.running),
        Line("waiting", "#ffffff", lambda reading: reading.waiting_total),
    ),
    limit="max_num_seqs",
)
WALL = 1_700_000_000.0


def reading(time: float, running: float = 1.0) -> Reading:
    return dataclasses.replace(read(time, History(60)), running=running)


def seen(*readings: Reading, now: float, most: str = "") -> View:
    health = server.Health(server.State.READY)
    return View(health, {"max_num_seqs": most}, readings, 0.0, now, WALL, "")


def line(name: str, *readings: Reading, now: float) -> list[tuple[float, float | None]]:
    """Without the rows at the ends of the axis, which no reading made."""
    table = columns(CHART, seen(*readings, now=now))
    points = [
        ((time or 0) / 1000 - WALL, value)
        for time, value in zip(table["time"], table[name], strict=True)
    ]
    assert points[:2] == [(-SPAN_SECONDS, 0), (-SPAN_SECONDS, None)]
    assert points[-2:] == [(0, None), (0, 0)]
    return points[2:-2]


def test_a_point_stands_at_the_time_of_its_reading() -> None:
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


@pytest.mark.parametrize(
    ("running", "most", "drawn"),
    [(16, "64", 64), (15, "64", None), (99, "", None), (99, "none", None)],
)
def test_a_limit_is_drawn_once_the_values_come_near(
    running: int, most: str, drawn: int | None
) -> None:
    table = columns(CHART, seen(reading(0, running), now=0, most=most))
    assert set(table["limit"][1:-1]) == {drawn}


def test_without_any_reading_every_column_has_a_number_still() -> None:
    for chart in CHARTS:  # Vega warns of a column without any
        table = columns(chart, seen(now=0))
        assert all(any(value is not None for value in column) for column in table.values())


def test_a_specification_does_not_change_with_its_readings() -> None:
    for chart in CHARTS:
        assert specification(chart) == specification(chart)
        assert "values" not in json.dumps(specification(chart)["data"])


def test_pointing_at_a_chart_tells_the_clock_and_every_line() -> None:
    for chart in CHARTS:
        told = specification(chart)["layer"][-1]["encoding"]["tooltip"]
        assert [item["title"] for item in told] == [
            "at",
            *(line.name for line in reversed(chart.lines)),
        ]


def test_a_colour_means_the_same_in_every_chart() -> None:
    meanings: dict[str, set[str]] = {}
    for chart in CHARTS:
        for line in chart.lines:
            meanings.setdefault(line.color, set()).add(line.name)
    assert meanings == {
        TEAL: {"running", "generated", "active", "answered"},
        INDIGO: {"prompt"},
        GREY: {"cached", "client left"},
        AMBER: {"waiting", "refused"},
        RED: {"failed"},
        LIGHT_BLUE: {"p50"},
        BLUE: {"p95"},
        DEEP_BLUE: {"p99"},
    }


def test_every_line_has_a_colour_of_its_own() -> None:
    for chart in CHARTS:
        assert len({line.color for line in chart.lines}) == len(chart.lines)
        assert len({line.name for line in chart.lines}) == len(chart.lines)


def test_charts_of_one_line_need_no_legend() -> None:
    for chart in CHARTS:
        color = specification(chart)["layer"][0]["encoding"]["color"]
        assert (color["legend"] is None) == (len(chart.lines) == 1)
