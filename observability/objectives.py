"""Service level objectives: the defaults of boards and alerts.

An objective is a bucket bound of its histogram, so that the share of requests within it is a ratio
of two counters, without interpolation."""

from __future__ import annotations

from dataclasses import dataclass

from observability import catalogue
from observability.metric_kinds import Metric
from observability.outcomes import OUTCOMES, OutcomeGroup

SLO_TTFT_SECONDS = 2.0
SLO_ITL_SECONDS = 0.1

# Refused through the fault of the server or its load, not of the request.
_SERVER_REFUSES = {
    "refused:loading",
    "refused:engine",
    "refused:preparation",
    "refused:store",
    "refused:overloaded",
    "refused:crashing",
}
# The client's deadline: the server was too slow for it.
_TOO_LATE = {"deadline", "refused:deadline", "refused:expired"}

BAD_OUTCOMES = tuple(
    outcome.name
    for outcome in OUTCOMES
    if outcome.group is OutcomeGroup.FAILED or outcome.name in _SERVER_REFUSES | _TOO_LATE
)
"""Ends that spend the budget of availability."""

GOOD_OUTCOMES = tuple(
    outcome.name for outcome in OUTCOMES if outcome.group is OutcomeGroup.ANSWERED
)
COUNTED_OUTCOMES = (*GOOD_OUTCOMES, *BAD_OUTCOMES)
"""Ends that count for availability. The others say nothing about the server: invalid requests,
clients that left, a drain."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """``ttft`` and ``itl`` in seconds. Budgets: the share of requests that may miss. Raises
    ValueError for an objective that is not a bucket bound and a budget that is not a share."""

    ttft: float = SLO_TTFT_SECONDS
    itl: float = SLO_ITL_SECONDS
    ttft_budget: float = 0.01
    itl_budget: float = 0.01
    availability_budget: float = 0.001

    def __post_init__(self) -> None:
        _check_bound("ttft", self.ttft, catalogue.TIME_TO_FIRST_TOKEN)
        _check_bound("itl", self.itl, catalogue.INTER_TOKEN_LATENCY)
        for name in ("ttft_budget", "itl_budget", "availability_budget"):
            # With the fast rule's factor of 14.4, a larger one could never be overspent.
            if not 0 < getattr(self, name) < 1 / 14.4:
                raise ValueError(f"{name} must be above 0 and below {1 / 14.4:.3f}")


def _check_bound(name: str, seconds: float, metric: Metric) -> None:
    if seconds not in metric.buckets:
        bounds = " ".join(f"{bound:g}" for bound in metric.buckets)
        raise ValueError(f"{name} must be a bucket bound of {metric.name}: one of {bounds}")
