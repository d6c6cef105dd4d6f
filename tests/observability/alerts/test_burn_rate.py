"""Burn rates: the long window that says it matters, the short one that it is still so."""

from __future__ import annotations

from observability.alerts.burn_rate import PACES, budget_alerts, recordings
from observability.alerts.model import Severity
from observability.objectives import Objectives


def test_each_share_is_recorded_once_for_each_window() -> None:
    found = list(recordings(Objectives()))
    names = [recording.record for recording in found]
    assert len(set(names)) == len(names) == 3 * 6
    by_name = {recording.record: recording.expr for recording in found}
    assert 'le="2.0"}[30m]' in by_name["job:quire_ttft_missed:ratio_rate30m"]
    assert "refused:overloaded" in by_name["job:quire_availability_missed:ratio_rate1d"]
    assert not any("WINDOW" in expr for expr in by_name.values())


def test_a_pace_pages_if_it_spends_a_months_budget_within_days() -> None:
    assert [(pace.factor, pace.severity) for pace in PACES] == [
        (14.4, Severity.PAGE),
        (6, Severity.PAGE),
        (3, Severity.TICKET),
    ]


def test_an_alert_compares_both_windows_with_the_budget_and_needs_requests() -> None:
    alerts = {alert.name: alert for alert in budget_alerts(Objectives(itl=0.05, itl_budget=0.005))}
    assert len(alerts) == 9
    medium = alerts["QuireItlBudgetMedium"]
    assert medium.expr == (
        "job:quire_itl_missed:ratio_rate6h > 0.03 and job:quire_itl_missed:ratio_rate30m > 0.03"
        " and sum by (job) (increase(quire_inter_token_latency_seconds_count[30m])) > 20"
        " and job:quire_itl_missed:ratio_rate30m"
        " * sum by (job) (increase(quire_inter_token_latency_seconds_count[30m])) > 10"
    )
    assert "longer than 0.05 s in the last 6h" in medium.summary
    assert "with more than 10 misses in the last 30m" in medium.meaning
