"""An alert's anchor is the one that the runbook's page gives its heading."""

from __future__ import annotations

from observability.alerts.files import RUNBOOK
from observability.alerts.table import alerts
from observability.objectives import Objectives


def test_anchors_lead_to_headings() -> None:
    headings = {
        line.removeprefix("## ").lower().replace(" ", "-")
        for line in RUNBOOK.read_text().splitlines()
        if line.startswith("## ")
    }
    assert {alert.anchor for alert in alerts(Objectives())} == headings
