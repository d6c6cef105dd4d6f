"""The page of drills is that of the table, and names alerts that there are."""

from __future__ import annotations

import pytest

from engine.faults.table import FAULTS, Place
from observability.alerts.table import alerts
from observability.objectives import Objectives
from service import drill_page


def test_the_committed_page_lists_the_faults() -> None:
    assert drill_page.main(["--check"]) == 0, "run: make docs"


def test_a_page_of_other_faults_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill_page, "page", lambda: "another page")
    assert drill_page.main(["--check"]) == 1


def test_each_fault_of_a_server_has_its_drill_and_each_alert_exists() -> None:
    servers = {row.name for row in FAULTS if row.place is not Place.CLIENT}
    assert set(drill_page.DRILLS) == servers
    known = {alert.name for alert in alerts(Objectives())}
    assert {drill.alert for drill in drill_page.DRILLS.values()} - {""} <= known
    for drill in drill_page.DRILLS.values():
        assert bool(drill.alert) == bool(drill.when)
