"""Objectives: share, burn rate and what is left of the budget are the same sum."""

from __future__ import annotations

import re

from observability.alerts.burn_rate import PACES
from observability.boards.objectives import SLO_BOARD

PANELS = {panel.title: panel for panel in SLO_BOARD.panels}


def test_burn_rates_are_shown_over_the_long_windows_of_the_alerts() -> None:
    for pace in PACES:
        panel = PANELS[f"Burn rate over {pace.long}"]
        assert f"[{pace.long}]" in panel.queries[0].expr
        assert f"Above {pace.factor:g} " in panel.help


def test_every_indicator_has_a_share_a_rate_and_a_rest() -> None:
    legends = [query.legend for query in PANELS["Burn rate over 1h"].queries]
    assert legends == ["first token", "between tokens", "availability"]
    for name in legends:
        assert f"{name}, time range" in PANELS
        (rest,) = PANELS[f"{name}, budget left"].queries
        assert re.search(r"/ \$budget(_up)?, 0\)$", rest.expr)
