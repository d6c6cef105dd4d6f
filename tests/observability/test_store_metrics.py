"""The store's metrics are a part of the catalogue."""

from __future__ import annotations

from observability import catalogue, store_metrics
from observability.metric_kinds import Combined, Metric


def test_the_catalogue_has_all_of_them() -> None:
    own = [each for each in vars(store_metrics).values() if isinstance(each, Metric)]
    assert list(store_metrics.STORE_METRICS) == own
    assert all(each in catalogue.METRICS for each in own)


def test_one_worker_without_the_store_is_enough() -> None:
    assert store_metrics.STORE_UNAVAILABLE.combined is Combined.MAX
    assert store_metrics.RESPONSES_NOT_STORED.combined is Combined.SUM
