"""The overview answers the three questions of its rows."""

from __future__ import annotations

from observability.boards.overview import OVERVIEW
from observability.objectives import BAD_OUTCOMES


def expressions(title: str) -> list[str]:
    (panel,) = (panel for panel in OVERVIEW.panels if panel.title == title)
    return [query.expr for query in panel.queries]


def test_attainment_follows_the_pickers() -> None:
    (ttft,) = expressions("First token within SLO")
    (itl,) = expressions("Token gaps within SLO")
    assert 'le="$slo_ttft"' in ttft
    assert 'le="$slo_itl"' in itl
    assert {picker.name for picker in OVERVIEW.pickers} == {"slo_ttft", "slo_itl"}


def test_phases_are_stacked_and_refusals_by_reason() -> None:
    stacked = {panel.title for panel in OVERVIEW.panels if panel.stacked}
    assert {"Where the time goes", "Refused", "Sequences", "Requests ended"} <= stacked
    assert len(expressions("Requests ended")) == 4


def test_the_share_of_faults_counts_what_spends_the_budget() -> None:
    (share,) = expressions("Failed or refused by the server")
    faults, all_counted = share.split(" / ")
    assert all(name in faults and name in all_counted for name in BAD_OUTCOMES)
    assert "client_gone" not in all_counted
