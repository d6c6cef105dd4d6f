"""Readings as lines over the last five minutes, in Vega-Lite.

A chart's specification does not depend on its readings, so the browser only takes in new data: the
time axis follows two rows at its ends, which belong to no reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.poller import View
from dashboard.reading import Reading

SPAN_SECONDS = 300
# Readings further apart than this are not joined by a line: nothing is known in between.
_GAP_SECONDS = 5.0
# A limit's line is drawn once the values come this near: drawn always, it would flatten them.
_NEAR_LIMIT = 0.25

TIME, LIMIT, MEASURED = "time", "limit", "measured"
DATASET = "readings"
# A chart is described as a whole: labelling each of hundreds of points helps no one.
_UNSPOKEN = {"aria": False}


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    color: str
    value: Callable[[Reading], float]


@dataclass(frozen=True, slots=True)
class Unit:
    """``shown``: a Vega expression that writes ``{}`` for people, on the axis and when pointed
    at. ``whole``: values are whole numbers."""

    shown: str
    whole: bool = False


COUNT = Unit("format({}, ',d')", whole=True)
RATE = Unit("format({}, ',.3~r')")
SHARE = Unit("format({}, '.3~r') + ' %'")
# As in the tiles: milliseconds below a second, seconds above.
SECONDS = Unit("({0} < 1 ? format({0} * 1000, '.2~r') + ' ms' : format({0}, '.2~r') + ' s')")


@dataclass(frozen=True, slots=True)
class Chart:
    """``stacked``: lines are parts of one whole, the first at the bottom. ``top``: the y axis'
    upper end, or None to follow the data, which then reaches up to ``least`` at the least.
    ``limit``: label of quire_engine_info that says where the values cannot pass."""

    title: str
    unit: Unit
    lines: tuple[Line, ...]
    stacked: bool = False
    top: float | None = None
    least: float = 1.0
    limit: str | None = None


def columns(chart: Chart, view: View) -> dict[str, list[float | None]]:
    """One row per reading, with a column for each line; ``time`` in milliseconds since the epoch.

    At both ends of the time axis is a row of zeros, joined to no other: a chart without any
    value would have no axis.
    """
    rows: list[tuple[float, Reading | None]] = []
    before: float | None = None
    for reading in view.readings:
        if view.now - reading.time > SPAN_SECONDS:
            continue
        if before is not None and reading.time - before > _GAP_SECONDS:
            rows.append(((before + reading.time) / 2, None))
        rows.append((reading.time, reading))
        before = reading.time
    begin, end = view.now - SPAN_SECONDS, view.now
    moments = [begin, begin, *(moment for moment, _ in rows), end, end]
    table: dict[str, list[float | None]] = {
        TIME: [round((moment - view.now + view.wall) * 1000) for moment in moments],
        MEASURED: [0, 0, *(int(reading is not None) for _, reading in rows), 0, 0],
    }
    for line in chart.lines:
        table[line.name] = [0, None, *(_known(line, reading) for _, reading in rows), None, 0]
    if chart.limit is not None:
        limit = _limit(chart, view.engine, table)
        table[LIMIT] = [limit or 0, *([limit] * (len(moments) - 2)), limit or 0]
    return table


def _known(line: Line, reading: Reading | None) -> float | None:
    """None breaks the line."""
    if reading is None:
        return None
    value = line.value(reading)
    return None if math.isnan(value) else float(f"{value:.4g}")


def _limit(
    chart: Chart, engine: Mapping[str, str], table: Mapping[str, Sequence[float | None]]
) -> float | None:
    """None unless the values have come near it."""
    text = engine.get(chart.limit or "", "")
    if not text.isdigit():
        return None
    tops = zip(*(table[line.name] for line in chart.lines), strict=True)
    highest = max(sum(value or 0 for value in values) for values in tops)
    return float(text) if highest >= int(text) * _NEAR_LIMIT else None


def specification(chart: Chart) -> dict[str, Any]:
    """Independent of the readings: the same chart always has the same specification."""
    layers = [_layer(chart, index) for index in range(len(chart.lines))]
    if chart.limit is not None:
        layers.append(_limit_layer())
    return {
        "data": {"name": DATASET},
        "height": 145,
        "padding": {"left": 0, "top": 2, "right": 4, "bottom": 0},
        "transform": _sums(chart) + _words(chart),
        "layer": [*layers, _least_layer(chart), _crosshair(chart)],
        "encoding": {"x": _time_axis()},
        "resolve": {"scale": {"color": "shared"}},
    }


def _field(line: Line) -> str:
    return f"datum['{line.name}']"


def _top(chart: Chart, index: int) -> str:
    """The field that has a line's upper edge."""
    return f"{chart.lines[index].name} top" if chart.stacked else chart.lines[index].name


def _sums(chart: Chart) -> list[dict[str, str]]:
    if not chart.stacked:
        return []
    return [
        {
            "calculate": _if_known(
                chart.lines[index],
                " + ".join(f"({_field(line)} || 0)" for line in chart.lines[: index + 1]),
            ),
            "as": _top(chart, index),
        }
        for index in range(len(chart.lines))
    ]


def _words(chart: Chart) -> list[dict[str, str]]:
    words = [
        {
            "calculate": f"datum.{MEASURED} == 1 && "
            + _if_known(line, chart.unit.shown.format(_field(line)), "'–'"),
            "as": f"{line.name} shown",
        }
        for line in chart.lines
    ]
    clock = f"timeFormat(datum.{TIME}, '%H:%M:%S')"
    ago = f"round((now() - datum.{TIME}) / 1000)"
    return [*words, {"calculate": f"{clock} + ', ' + {ago} + ' s ago'", "as": "when"}]


def _if_known(line: Line, expression: str, otherwise: str = "null") -> str:
    return f"isValid({_field(line)}) ? {expression} : {otherwise}"


def _layer(chart: Chart, index: int) -> dict[str, Any]:
    mark: dict[str, Any] = {"type": "line", "interpolate": "monotone", "strokeWidth": 1.75}
    encoding: dict[str, Any] = {
        "y": _value_axis(chart, _top(chart, index)),
        "color": _colors(chart, index),
    }
    if chart.stacked:
        mark = {"type": "area", "interpolate": "monotone", "fillOpacity": 0.55}
        mark["line"] = {"strokeWidth": 1, "aria": False}
        encoding["y2"] = {"field": _top(chart, index - 1)} if index else {"datum": 0}
    return {"mark": mark | _UNSPOKEN, "encoding": encoding}


def _limit_layer() -> dict[str, Any]:
    return {
        "mark": {
            **{"type": "line", "strokeDash": [5, 3], "strokeWidth": 1.25, "color": "#b45309"},
            **_UNSPOKEN,
        },
        "encoding": {"y": {"field": LIMIT, "type": "quantitative"}},
    }


def _least_layer(chart: Chart) -> dict[str, Any]:
    """Unseen: keeps a chart of zeros from choosing an axis around rounding errors, and one
    without any value from having no axis."""
    return {
        "mark": {"type": "point", "opacity": 0, "tooltip": None} | _UNSPOKEN,
        "encoding": {"x": None, "y": {"datum": chart.top or chart.least}},
    }


def _crosshair(chart: Chart) -> dict[str, Any]:
    said = [{"field": "when", "type": "nominal", "title": "at"}]
    said += [
        {"field": f"{line.name} shown", "type": "nominal", "title": line.name}
        for line in reversed(chart.lines)
    ]
    return {
        "params": [
            {
                "name": "pointed",
                "select": {
                    "type": "point",
                    "fields": [TIME],
                    "nearest": True,
                    "on": "pointerover",
                    "clear": "pointerout",
                },
            }
        ],
        "mark": {"type": "rule", "color": "#64748b"} | _UNSPOKEN,
        "encoding": {
            "opacity": {
                "condition": {"param": "pointed", "empty": False, "value": 0.7},
                "value": 0,
            },
            "tooltip": said,
        },
    }


def _time_axis() -> dict[str, Any]:
    return {
        "field": TIME,
        "type": "temporal",
        "scale": {"nice": False},
        "axis": {
            "title": None,
            "format": "%H:%M",
            "tickCount": 5,
            "grid": False,
        },
    }


def _value_axis(chart: Chart, field: str) -> dict[str, Any]:
    scale: dict[str, Any] = {"domainMin": 0, "nice": True}
    if chart.top is not None:
        scale["domainMax"] = chart.top
    axis: dict[str, Any] = {
        "title": None,
        "tickCount": 4,
        "minExtent": 44,
    }
    axis["labelExpr"] = "datum.value == 0 ? '0' : " + chart.unit.shown.format("datum.value")
    if chart.unit.whole:
        axis["tickMinStep"] = 1
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _colors(chart: Chart, index: int) -> dict[str, Any]:
    names, colors = [line.name for line in chart.lines], [line.color for line in chart.lines]
    legend = {
        **{"title": None, "orient": "top", "offset": 2, "symbolType": "square"},
        **{"columnPadding": 8, "labelFontSize": 12},
    }
    return {
        "datum": names[index],
        "type": "nominal",
        "scale": {"domain": names, "range": colors},
        "legend": {**legend, "symbolSize": 60} if len(names) > 1 else None,
    }
