"""Boards about requests show each phase, status and kind of token."""

from __future__ import annotations

from observability.boards.requests import API_BOARD, KEYS_BOARD, PHASES_BOARD
from observability.outcomes import OUTCOMES
from observability.phases import PHASES


def test_each_phase_has_a_panel_with_its_meaning() -> None:
    panels = {panel.title: panel for panel in PHASES_BOARD.panels}
    for phase in PHASES:
        assert phase.help[1:] in panels[phase.name].help
        assert all(f'phase="{phase.name}"' in each.expr for each in panels[phase.name].queries)
    assert len(panels["Mean time in each phase"].queries) == len(PHASES)


def test_every_outcome_is_on_the_api_board() -> None:
    (ended,) = (panel for panel in API_BOARD.panels if panel.title == "Ended by outcome")
    assert all(outcome.name in ended.queries[0].expr for outcome in OUTCOMES)


def test_keys_have_all_kinds_of_tokens() -> None:
    shown = " ".join(query.expr for panel in KEYS_BOARD.panels for query in panel.queries)
    for kind in ("prompt", "cached", "output"):
        assert f'kind="{kind}"' in shown
    assert "$model" not in shown  # these series do not have it
