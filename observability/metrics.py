"""The catalogue's metrics: ``registry[catalogue.REQUESTS].labels(…).inc()``, and the scrape page.

Their numbers lie in a ledger (``observability.ledger``) that outlives the process. Threads are not
expected to write: the API worker's event loop is the one writer, and the scrape runs on it too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.exposition import choose_encoder

from observability import catalogue
from observability.alias_exposition import alias_texts
from observability.aliases import Alias, InfoAlias
from observability.combined import NOTHING_SHARED, Shared, WorkerNumbers
from observability.exposition import (
    FamilySample,
    FamilyText,
    HistogramText,
    InfoText,
    ScalarText,
)
from observability.layout import NO_LABEL_VALUES, FamilyLayout, LedgerLayout
from observability.ledger import WorkerLedger
from observability.metric_kinds import Metric, MetricKind
from observability.process_metrics import process_registry, workers_registry
from observability.series import (
    BulkHistogramSeries,
    CounterSeries,
    GaugeSeries,
    HistogramSeries,
    InfoSeries,
)

_END_OF_PAGE = b"# EOF\n"  # of the OpenMetrics format
_CHARS_PER_PIECE = 16_384

AnySeries = CounterSeries | GaugeSeries | HistogramSeries | BulkHistogramSeries


class Family:
    """One metric's series. Those of an ``on_use`` metric exist from their first ``labels``, all
    others from the start."""

    def __init__(self, layout: FamilyLayout, ledger: WorkerLedger, workers: WorkerNumbers) -> None:
        self._layout = layout
        self._ledger = ledger
        self._series: dict[tuple[str, ...], AnySeries] = {}
        metric = layout.metric
        self._names = tuple(label.name for label in metric.labels)
        self._numbers = workers[metric.combined]
        self._may_grow = metric.on_use and bool(workers)
        self._scalars = ScalarText(metric, self._numbers, layout.first_cell, layout.cells)
        self._histograms = HistogramText(metric, self._numbers)
        is_histogram = metric.kind is MetricKind.HISTOGRAM
        self.lines: FamilyText = self._histograms if is_histogram else self._scalars
        for number, values in enumerate(layout.combinations()):
            if not metric.on_use or self._has_value(number):
                self.labels(*values)

    def find_series(self) -> None:
        """Create the series that other workers have used."""
        if not self._may_grow:
            return
        layout = self._layout
        values = self._numbers.numbers(layout.first_cell, layout.cells)
        for number, labels in enumerate(layout.combinations()):
            if labels not in self._series:
                first = number * layout.width
                if any(values[first : first + layout.width]):
                    self.labels(*labels)

    def _has_value(self, number: int) -> bool:
        layout = self._layout
        return any(self._ledger.raw(layout.first_cell + number * layout.width, layout.width))

    def labels(self, *values: str) -> Any:
        """Return the series of these label values. Raises ValueError for any that the metric cannot
        have."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = self._create(values)
        return found

    def _create(self, values: tuple[str, ...]) -> AnySeries:
        layout, metric, ledger = self._layout, self._layout.metric, self._ledger
        number = layout.number_of(values)
        cell = layout.first_cell + number * layout.width
        labels = dict(zip(self._names, values, strict=True))
        if metric.kind is not MetricKind.HISTOGRAM:
            self._scalars.add(cell, labels)
            is_counter = metric.kind is MetricKind.COUNTER
            return CounterSeries(ledger, cell) if is_counter else GaugeSeries(ledger, cell)
        exemplars = -1
        if not metric.bulk:
            exemplars = layout.first_exemplar + number * (len(metric.buckets) + 1)
        self._histograms.add(cell, exemplars, labels)
        if metric.bulk:
            return BulkHistogramSeries(ledger, cell, metric.buckets)
        return HistogramSeries(ledger, cell, metric.buckets, exemplars)

    def gauges(self) -> Iterator[GaugeSeries]:
        return (series for series in self._series.values() if isinstance(series, GaugeSeries))


class MetricRegistry:
    """Every metric in the catalogue: ``registry[catalogue.REQUESTS]``.

    ``models``: the names the server answers to, the engine's own first. ``label_values``: of labels
    that have none in the catalogue. ``metrics`` and the sizes as in ``LedgerLayout``.
    ``descriptor``: of the ledger's memory, see ``WorkerLedger``, whose errors this raises.
    ``aliases``: further names on the scrape page. ``shared``: by all workers
    of the server.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        label_values: Mapping[str, Sequence[str]] = NO_LABEL_VALUES,
        metrics: Sequence[Metric] = catalogue.METRICS,
        open_requests: int = 0,
        usage_rows: int = 0,
        ring_bytes: int = 0,
        key_names: int = 0,
        descriptor: int | None = None,
        aliases: Sequence[Alias | InfoAlias] = (),
        shared: Shared = NOTHING_SHARED,
    ) -> None:
        self.models = tuple(dict.fromkeys(models))
        layout = LedgerLayout(
            self.models,
            label_values,
            metrics=metrics,
            open_requests=open_requests,
            usage_rows=usage_rows,
            ring_bytes=ring_bytes,
            key_names=key_names,
            engines=shared.engines,
        )
        self.ledger = WorkerLedger(layout, descriptor)
        self.workers = WorkerNumbers(self.ledger, shared.ledgers)
        self.engine_ledger = self.ledger
        if shared.engine_ledger is not None:
            own = LedgerLayout(self.models, metrics=(), engines=shared.engines)
            self.engine_ledger = WorkerLedger(own, shared.engine_ledger, shared=True)
        self._families: dict[str, Family] = {}
        self._infos: dict[str, InfoSeries] = {}
        self._texts: dict[str, FamilyText] = {}
        for metric in metrics:
            if metric.kind is MetricKind.INFO:
                info = self._infos[metric.name] = InfoSeries()
                self._texts[metric.name] = InfoText(metric, info)
            else:
                family = Family(layout.families[metric.name], self.ledger, self.workers)
                self._families[metric.name] = family
                self._texts[metric.name] = family.lines
        self._aliases = tuple(
            alias_texts(aliases, layout.families, self._infos, self.workers, self.models[0])
        )
        self._of_process = process_registry()
        if shared.pids is not None:
            self._of_process = workers_registry(shared.pids)

    def __getitem__(self, metric: Metric) -> Any:
        if metric.kind is MetricKind.INFO:
            return self._infos[metric.name]
        return self._families[metric.name]

    def series(self, metric: Metric) -> Callable[..., Any]:
        """Return the metric's ``labels``, which finds a series through a plain dict."""
        labels: Callable[..., Any] = self._families[metric.name].labels
        return labels

    def clear_gauges(self) -> None:
        """Set all gauges to 0: those of another process say nothing about this one."""
        for family in self._families.values():
            for gauge in family.gauges():
                gauge.set(0.0)

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """Return the scrape page in the format ``accept`` requests (text or OpenMetrics; only the
        latter has exemplars) and its content type."""
        pieces, content_type = self.exposition_pieces(accept)
        return b"".join(pieces), content_type

    def exposition_pieces(self, accept: str | None) -> tuple[Iterator[bytes], str]:
        """The same page in pieces, each made when requested."""
        encoder, content_type = choose_encoder(_OPENMETRICS if _takes_openmetrics(accept) else "")
        openmetrics = "openmetrics" in content_type

        def pieces() -> Iterator[bytes]:
            yield encoder(self._of_process).removesuffix(_END_OF_PAGE)
            self.workers.look()
            for family in self._families.values():
                family.find_series()
                for gauge in family.gauges():
                    gauge.refresh()
            families = itertools.chain(self._texts.values(), self._aliases)
            texts = (text.text(openmetrics=openmetrics) for text in families)
            for piece in _gathered(texts):
                yield piece.encode()
            if openmetrics:
                yield _END_OF_PAGE

        return pieces(), content_type

    def samples(self) -> Iterator[FamilySample]:
        """Yield the samples that the page shows of the catalogue's metrics."""
        self.workers.look()
        return itertools.chain.from_iterable(text.samples() for text in self._texts.values())

    def sample(self, metric: Metric, labels: Mapping[str, str], suffix: str = "") -> float | None:
        """Return the current value of one series, None where it does not exist."""
        for sample in self._texts[metric.name].samples():
            if sample.name == metric.name + suffix and sample.labels == labels:
                return sample.value
        return None


def _gathered(texts: Iterable[str]) -> Iterator[str]:
    """Join short texts to pieces."""
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size >= _CHARS_PER_PIECE:
            yield "".join(parts)
            parts, size = [], 0
    yield "".join(parts)


_OPENMETRICS = "application/openmetrics-text"


def _takes_openmetrics(accept: str | None) -> bool:
    """Return whether a scraper accepts it, and likes it at least as much as the text format. One
    version of each format is served. For the library, any other version would be a format of a
    separate page."""
    openmetrics = text = 0.0
    for accepted in (accept or "").split(","):
        kind, *parameters = (part.strip() for part in accepted.split(";"))
        quality = _quality(parameters)
        if kind == "text/plain":
            text = max(text, quality)
        elif kind == _OPENMETRICS:
            version = next((p[8:] for p in parameters if p.startswith("version=")), "1")
            if version.partition(".")[0] == "1":
                openmetrics = max(openmetrics, quality)
    return openmetrics > 0 and openmetrics >= text


def _quality(parameters: Iterable[str]) -> float:
    """Return how much a scraper likes a format, from 0 (not at all) to 1."""
    given = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return float(given)
    except ValueError:
        return 1.0
