"""What waits at all workers of a server, and how many connections they have, read from the cells of
their ledgers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from observability import catalogue, connection_metrics, queue_metrics
from observability.metric_kinds import Metric
from observability.metrics import MetricRegistry


@dataclass(frozen=True, slots=True)
class Queues:
    """Of one worker or of all. Durations are seconds; ``predicted_wait``: None if unknown."""

    waiting: int
    oldest_waiting: float
    predicted_wait: float | None
    longest_gap: float


class AllQueues:
    """False if there is only one worker. The workers write these cells once a second."""

    def __init__(self, metrics: MetricRegistry) -> None:
        self._metrics = metrics

    def __bool__(self) -> bool:
        return bool(self._metrics.workers)

    def read(self) -> Queues:
        self._metrics.workers.look()
        predicted = self._largest(catalogue.PREDICTED_WAIT_SECONDS)
        return Queues(
            round(sum(self._values(queue_metrics.CLASS_WAITING))),
            self._largest(catalogue.OLDEST_WAITING_SECONDS),
            None if math.isnan(predicted) else predicted,
            self._largest(catalogue.LONGEST_GAP_SECONDS),
        )

    def connections(self) -> tuple[int, int]:
        """Return how many are open and how many may be, also if there is one worker. All
        accept from the same socket."""
        self._metrics.workers.look()
        metrics = connection_metrics.OPEN_CONNECTIONS, connection_metrics.CONNECTION_LIMIT
        open_now, limit = (round(sum(self._values(metric))) for metric in metrics)
        return open_now, limit

    def _values(self, metric: Metric) -> list[float]:
        family = self._metrics.ledger.layout.families[metric.name]
        return self._metrics.workers[metric.combined].numbers(family.first_cell, family.cells)

    def _largest(self, metric: Metric) -> float:
        """Return the value of the engine's own name; those of aliases are not set."""
        family = self._metrics.ledger.layout.families[metric.name]
        return self._values(metric)[family.number_of((self._metrics.models[0],))]
