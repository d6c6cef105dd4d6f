"""The metrics of connections are a part of the catalogue."""

from __future__ import annotations

from observability import catalogue, connection_metrics
from observability.metric_kinds import Combined, Metric


def test_the_catalogue_has_all_of_them() -> None:
    own = [each for each in vars(connection_metrics).values() if isinstance(each, Metric)]
    assert list(connection_metrics.CONNECTION_METRICS) == own
    assert all(each in catalogue.METRICS for each in own)


def test_those_of_all_workers_are_added() -> None:
    """All accept from the same socket, so that none waits while one of them has room."""
    kinds = {each.combined for each in connection_metrics.CONNECTION_METRICS}
    assert kinds == {Combined.SUM}
