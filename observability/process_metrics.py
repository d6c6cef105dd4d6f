"""Metrics of the processes themselves: CPU time, memory, open files. They are not in the catalogue,
but have the names that Prometheus clients have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def process_registry() -> CollectorRegistry:
    """Return the metrics of this process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def workers_registry(pids: Callable[[], Mapping[int, int]]) -> CollectorRegistry:
    """Return those of all workers, with the label ``worker``. ``pids``: finds their process ids, by
    index. Those of the garbage collector are left out: another process cannot read them."""
    registry = CollectorRegistry()
    registry.register(_WorkersCollector(pids))
    PlatformCollector(registry=registry)
    return registry


class _WorkersCollector(Collector):
    def __init__(self, pids: Callable[[], Mapping[int, int]]) -> None:
        self._pids = pids

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for index, pid in self._pids().items():
            for found in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                family = families.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type, found.unit)
                )
                for sample in found.samples:
                    labels = {**sample.labels, "worker": str(index)}
                    family.add_sample(sample.name, labels, sample.value)
        return families.values()
