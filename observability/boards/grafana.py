"""A board as the JSON that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from observability.boards.model import Board, BoardChoice, Panel, PanelKind, PanelQuery, Picker

_COLUMNS = 24
_HEIGHTS = {PanelKind.STAT: 4, PanelKind.TABLE: 9}
_HEIGHT = 8  # of other panels
_TAG = "quire"
_SCHEMA = 39  # of Grafana 10.4; later ones migrate it
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NO_TRAFFIC = "No traffic"

_Object = dict[str, Any]


def dashboard(board: Board) -> _Object:
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.help,
        "tags": [_TAG],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "Quire boards",
                "type": "dashboards",
                "tags": [_TAG],
                "icon": "external link",
                "tooltip": "",
                "url": "",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
            }
        ],
        "templating": {"list": [_source_variable(), *_variables(board)]},
        "panels": list(_panels(board)),
    }


def text(board: Board) -> str:
    return json.dumps(dashboard(board), indent=1, ensure_ascii=False) + "\n"


def _source_variable() -> _Object:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _variables(board: Board) -> Iterator[_Object]:
    yield from map(_choice, board.choices)
    yield from map(_picker, board.pickers)


def _choice(choice: BoardChoice) -> _Object:
    query = f"label_values({choice.series}, {choice.name})"
    return {
        "name": choice.name,
        "label": choice.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"qryType": 1, "query": query, "refId": "Variable"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": "All", "value": "$__all"},
    }


def _picker(picker: Picker) -> _Object:
    return {
        "name": picker.name,
        "label": picker.label,
        "type": "custom",
        "query": ", ".join(picker.values),
        "options": [
            {"text": value, "value": value, "selected": value == picker.start}
            for value in picker.values
        ],
        "current": {"selected": True, "text": picker.start, "value": picker.start},
        "multi": False,
        "includeAll": False,
    }


def _panels(board: Board) -> Iterator[_Object]:
    number, y = 1, 0
    for row in board.rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        number, y, x, tallest = number + 1, y + 1, 0, 0
        for panel in row.panels:
            height = _HEIGHTS.get(panel.kind, _HEIGHT)
            if x + panel.width > _COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            number, x, tallest = number + 1, x + panel.width, max(tallest, height)
        y += tallest


def _panel(panel: Panel) -> _Object:
    return {
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "targets": [_target(panel, query, index) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        **({"transformations": list(_columns(panel))} if panel.kind is PanelKind.TABLE else {}),
    }


def _target(panel: Panel, query: PanelQuery, index: int) -> _Object:
    formats = {PanelKind.HEAT_MAP: "heatmap", PanelKind.TABLE: "table"}
    is_table = panel.kind is PanelKind.TABLE
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": formats.get(panel.kind, "time_series"),
        "instant": is_table,
        "range": not is_table,
        "exemplar": panel.exemplars,
    }


def _columns(panel: Panel) -> Iterator[_Object]:
    """Name a table's columns by the queries' legends."""
    names = {f"Value #{chr(ord('A') + i)}": query.legend for i, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        names = {"Value": panel.queries[0].legend}
    yield {"id": "merge", "options": {}}
    yield {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}


def _defaults(panel: Panel) -> _Object:
    no_traffic = {"match": "null+nan", "result": {"index": 0, "text": _NO_TRAFFIC}}
    steps: list[_Object] = [{"color": "green" if panel.steps else "text", "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.steps]
    defaults: _Object = {
        "unit": panel.unit.value,
        "min": 0,
        "noValue": _NO_TRAFFIC,
        "mappings": [{"type": "special", "options": no_traffic}],
        "color": {"mode": "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind is PanelKind.STAT:
        defaults["color"] = {"mode": "thresholds"}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind is PanelKind.TIME_SERIES:
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 60 if panel.stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }
    return defaults


_OPTIONS: dict[PanelKind, _Object] = {
    PanelKind.STAT: {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    PanelKind.TIME_SERIES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    PanelKind.HEAT_MAP: {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Turbo",
            "steps": 64,
            "exponent": 0.5,
            "fill": "dark-orange",
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False},
    },
    PanelKind.TABLE: {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"]},
    },
}
