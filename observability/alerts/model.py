"""What an alert consists of: plain data, from which the rules and the runbook are written."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    PAGE = "page"  # wake the person on call
    TICKET = "ticket"  # look at it within a working day
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that Prometheus computes from others: ``record`` is its name."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """``hold``: how long ``expr`` must be true. ``summary``: Prometheus fills in labels and value.
    ``meaning``, ``look`` and ``act`` are the runbook's text; ``board``: where to look first."""

    name: str
    expr: str
    severity: Severity
    summary: str
    meaning: str
    look: tuple[str, ...]
    act: tuple[str, ...]
    board: str
    hold: str = "0m"

    @property
    def anchor(self) -> str:
        """Return the alert's anchor on the runbook's page."""
        return self.name.lower()
