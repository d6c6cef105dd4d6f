"""The catalogue's metrics as live Prometheus collectors.

One registry a process. Series with closed label sets exist at 0 from the start. Threads are not
expected to write: the API worker's event loop is the one writer, and the scrape runs on it too.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from observability import catalogue
from observability.catalogue import OTHER_KEY, OTHER_MODEL, Metric, MetricKind, Scope

# A time of creation per series would double the page, and Prometheus does not use it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class BulkHistogramSeries:
    """One series of a ``BulkHistogram``: per-bucket counts (not cumulative) and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """``times``: how many observations had this same value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class BulkHistogram(Collector):
    """A histogram for what is observed at each engine step or token, or all the time.

    prometheus_client's own takes a lock and scans the bounds for each observation, 1.8 us on the
    machine this was written on. Here a batch of token gaps costs 0.2 us a gap. No exemplars.
    """

    def __init__(self, metric: Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self._label_names = tuple(label.name for label in metric.labels)
        self._series: dict[tuple[str, ...], BulkHistogramSeries] = {}
        registry.register(self)

    def labels(self, *values: str) -> BulkHistogramSeries:
        if len(values) != len(self._label_names):
            raise ValueError(f"{self._metric.name} has labels {self._label_names}, got {values}")
        if values not in self._series:
            self._series[values] = BulkHistogramSeries(self._metric.buckets)
        return self._series[values]

    def describe(self) -> Iterable[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._metric.name, self._metric.help, labels=self._label_names)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            self._metric.name, self._metric.help, labels=self._label_names
        )
        bounds = [*(str(float(bound)) for bound in self._metric.buckets), "+Inf"]
        for values, series in self._series.items():
            cumulative = itertools.accumulate(series.counts)
            family.add_metric(values, list(zip(bounds, cumulative, strict=True)), series.total)
        yield family


_END_OF_PAGE = b"# EOF\n"  # of the OpenMetrics format


_SAMPLES_PER_PIECE = 100  # about a millisecond


class _OneFamily(CollectorRegistry):
    """What prometheus_client's encoders take to encode a single metric."""

    def __init__(self, family: MetricFamily) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterable[MetricFamily]:
        yield self._family


def _encoded(encoder: Callable[[CollectorRegistry], bytes], family: MetricFamily) -> bytes:
    return encoder(_OneFamily(family)).removesuffix(_END_OF_PAGE)


def _build(metric: Metric, registry: CollectorRegistry) -> Any:
    names = tuple(label.name for label in metric.labels)
    if metric.kind is MetricKind.COUNTER:
        return Counter(metric.name, metric.help, names, registry=registry)
    if metric.kind is MetricKind.GAUGE:
        return Gauge(metric.name, metric.help, names, registry=registry)
    if metric.kind is MetricKind.INFO:
        return Info(metric.name.removesuffix("_info"), metric.help, registry=registry)
    if metric.bulk:
        return BulkHistogram(metric, registry)
    return Histogram(metric.name, metric.help, names, buckets=metric.buckets, registry=registry)


class MetricRegistry:
    """Collectors of every metric in the catalogue: ``registry[catalogue.REQUESTS]``.

    ``models`` are the names the server answers to, the engine's own first; ``keys`` the aliases of
    its API keys. Every combination of
    closed label values, and of the names that a metric's scope allows, is created at once, so that
    ``increase()`` sees the first event of each.
    """

    def __init__(self, models: Sequence[str], keys: Sequence[str] = ()) -> None:
        self.models = tuple(dict.fromkeys(models))
        self._keys = (*dict.fromkeys(keys), OTHER_KEY)
        self._names = {
            Scope.PROCESS: (),
            Scope.ENGINE: self.models[:1],
            Scope.MODEL: self.models,
            Scope.REQUEST: (*self.models, OTHER_MODEL),
        }
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._collectors = {
            metric.name: _build(metric, self.registry) for metric in catalogue.METRICS
        }
        for metric in catalogue.METRICS:
            self._create_closed_series(metric)

    def __getitem__(self, metric: Metric) -> Any:
        return self._collectors[metric.name]

    def _create_closed_series(self, metric: Metric) -> None:
        if metric.kind is MetricKind.INFO or not (metric.labels or metric.bulk):
            return
        known = {catalogue.MODEL: self._names[metric.scope], catalogue.KEY: self._keys}
        sets = [known.get(label, label.values) for label in metric.labels]
        for values in itertools.product(*(values for values in sets if values is not None)):
            self[metric].labels(*values)

    def series(self, metric: Metric) -> Callable[..., Any]:
        """A cached ``labels``: finding a child by label values through a plain dict."""
        children: dict[tuple[str, ...], Any] = {}
        collector = self[metric]

        def child(*values: str) -> Any:
            found = children.get(values)
            if found is None:
                found = children[values] = collector.labels(*values)
            return found

        return child

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """The scrape page in the format ``accept`` asks for (text or OpenMetrics; exemplars only
        exist in the latter) and its content type."""
        pieces, content_type = self.exposition_pieces(accept)
        return b"".join(pieces), content_type

    def exposition_pieces(self, accept: str | None) -> tuple[Iterator[bytes], str]:
        """The same page, made a few samples at a time as they are asked for."""
        encoder, content_type = choose_encoder(_OPENMETRICS if _takes_openmetrics(accept) else "")

        def pieces() -> Iterator[bytes]:
            for family in self.registry.collect():
                samples, family.samples = family.samples, []
                head = _encoded(encoder, family)
                yield head
                for start in range(0, len(samples), _SAMPLES_PER_PIECE):
                    family.samples = samples[start : start + _SAMPLES_PER_PIECE]
                    yield _encoded(encoder, family).removeprefix(head)
            if "openmetrics" in content_type:
                yield _END_OF_PAGE

        return pieces(), content_type

    def sample(self, metric: Metric, labels: Mapping[str, str], suffix: str = "") -> float | None:
        """Current value of one series, None where it does not exist."""
        return self.registry.get_sample_value(metric.name + suffix, dict(labels))


_OPENMETRICS = "application/openmetrics-text"


def _takes_openmetrics(accept: str | None) -> bool:
    """One version of each format is served. The library would make another format of each version
    that anybody makes up, and a page of its own for each."""
    for accepted in (accept or "").split(","):
        kind, *parameters = (part.strip() for part in accepted.split(";"))
        if kind == _OPENMETRICS:
            version = next((p[8:] for p in parameters if p.startswith("version=")), "1")
            if version.partition(".")[0] == "1":
                return True
    return False
