from __future__ import annotations

import re
from pathlib import Path

from dashboard.board import BOARD, CHARTS_DRAWN, CONDITIONS, WORDINGS
from observability.admin_api import Condition, Overview
from observability.history import HISTORY

_DRAWING = Path(__file__).resolve().parents[2] / "dashboard" / "drawing"


def test_every_line_is_a_column_of_the_history() -> None:
    known = {column.name for column in HISTORY}
    assert {line.column for chart in BOARD for line in chart.lines} <= known


def test_conditions_are_in_the_order_of_the_history_s_column() -> None:
    assert [one["name"] for one in CONDITIONS] == [one.value for one in Condition]
    assert set(WORDINGS) == set(Condition)


def test_every_colour_is_one_that_the_drawing_knows() -> None:
    script = (_DRAWING / "common.js").read_text()
    known = set(re.findall(r'(\w+): "#', script[script.index("const NAMES") :][:400]))
    used = {line.color for chart in BOARD for line in chart.lines}
    assert used | {one.color for one in WORDINGS.values()} <= known


def test_limits_are_figures_of_the_overview() -> None:
    named = {chart.limit for chart in BOARD} - {""}
    plain = {name for name in named if not name.startswith("slo.")}
    assert plain <= set(Overview.__struct_fields__)
    assert {name.removeprefix("slo.") for name in named - plain} == {"ttft", "itl"}
    assert len(CHARTS_DRAWN) == len(BOARD)
