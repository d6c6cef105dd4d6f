"""The queue's metrics are a part of the catalogue."""

from __future__ import annotations

from observability import catalogue, queue_metrics
from observability.metric_kinds import Combined, Metric


def test_the_catalogue_has_all_of_them() -> None:
    own = [each for each in vars(queue_metrics).values() if isinstance(each, Metric)]
    assert list(queue_metrics.QUEUE_METRICS) == own
    assert all(each in catalogue.METRICS for each in own)
    assert all(each.labels[0] == catalogue.MODEL for each in own)


def test_each_worker_knows_only_its_own_sequences() -> None:
    assert queue_metrics.CLASS_WAITING.combined is Combined.SUM
    assert queue_metrics.CLASS_OLDEST_WAITING_SECONDS.combined is Combined.MAX
    assert queue_metrics.REFUSED_SEQUENCES.combined is Combined.SUM
