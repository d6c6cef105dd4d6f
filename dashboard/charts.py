"""Readings as lines over the last five minutes, in Vega-Lite.

The x axis is the age of a reading, so a chart's specification never changes and the browser
only takes in new data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.reading import Reading

SPAN_SECONDS = 300
# Readings further apart than this are not joined by a line: nothing is known in between.
_GAP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    color: str
    value: Callable[[Reading], float]


@dataclass(frozen=True, slots=True)
class Chart:
    """``top``: the y axis' upper end, or None to follow the data, which then reaches up to
    ``least`` at the least."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    area: bool = False
    top: float | None = None
    least: float = 1.0


def columns(chart: Chart, readings: Sequence[Reading], now: float) -> dict[str, list[Any]]:
    """One row per reading and line. ``age`` in seconds, negative."""
    age: list[float] = []
    name: list[str] = []
    value: list[float | None] = []
    for line in chart.lines:
        before: float | None = None
        for reading in readings:
            if now - reading.time > SPAN_SECONDS:
                continue
            if before is not None and reading.time - before > _GAP_SECONDS:
                age.append((before + reading.time) / 2 - now)
                name.append(line.name)
                value.append(None)
            number = line.value(reading)
            age.append(reading.time - now)
            name.append(line.name)
            value.append(number if number == number else None)  # NaN breaks the line too
            before = reading.time
    return {"age": [round(a, 2) for a in age], "line": name, "value": value}


def specification(chart: Chart) -> dict[str, Any]:
    """Independent of the readings: the same chart always has the same specification."""
    return {
        "height": 200,
        "layer": [
            {"mark": _mark(chart), "encoding": {"x": _age_axis(), "color": _colors(chart)}},
            # Unseen: keeps a chart of zeros from choosing an axis around rounding errors.
            {"mark": {"type": "point", "opacity": 0}, "encoding": {"y": {"datum": chart.least}}},
        ],
        "encoding": {"y": _value_axis(chart)},
    }


def _mark(chart: Chart) -> dict[str, Any]:
    line = {"interpolate": "monotone", "strokeWidth": 1.75, "tooltip": True}
    if chart.area:
        return {"type": "area", "line": {"strokeWidth": 1.75}, "fillOpacity": 0.15, **line}
    return {"type": "line", **line}


def _age_axis() -> dict[str, Any]:
    return {
        "field": "age",
        "type": "quantitative",
        "scale": {"domain": [-SPAN_SECONDS, 0], "nice": False},
        "axis": {
            "title": None,
            "values": list(range(-SPAN_SECONDS, 1, 60)),
            "labelExpr": "datum.value == 0 ? 'now' : format(datum.value / 60, 'd') + ' min'",
            "labelFlush": True,
            "grid": False,
        },
    }


def _value_axis(chart: Chart) -> dict[str, Any]:
    return {
        "field": "value",
        "type": "quantitative",
        "stack": None,
        "scale": {"domainMin": 0, "nice": True}
        | ({} if chart.top is None else {"domainMax": chart.top}),
        "axis": {
            "title": chart.unit,
            "tickCount": 4,
            "format": ",.3~r",
            "titleFontWeight": "normal",
        },
    }


def _colors(chart: Chart) -> dict[str, Any]:
    names, colors = [line.name for line in chart.lines], [line.color for line in chart.lines]
    legend = {"title": None, "orient": "top", "offset": 4, "symbolSize": 60}
    return {
        "field": "line",
        "type": "nominal",
        "scale": {"domain": names, "range": colors},
        "legend": legend if len(names) > 1 else None,
    }
