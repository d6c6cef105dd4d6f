"""Where each number of the catalogue lies in a worker's ledger: a pure function of the catalogue
and the label values, so that the next worker finds every number where the last one left it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from observability import catalogue
from observability.catalogue import OTHER_MODEL
from observability.metric_kinds import Label, Metric, MetricKind, Scope

_FORMAT = 5  # of the ledger; the next number if what surrounds the cells changes

# Cells of the table of usage: before its rows, and of each row.
USAGE_HEAD = 3
USAGE_WIDTH = 9
RING_CELLS = 2
# Of an engine, before its totals: see ``service.telemetry.engine_totals``.
ENGINE_HEAD = 3

NO_LABEL_VALUES: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class FamilyLayout:
    """The cells of one metric: ``width`` for each combination of label values, in the order of
    ``label_values``. A histogram's are its counts by bucket (not cumulative) and their sum.
    ``first_exemplar``: of one exemplar for each bucket, -1 if the metric has none."""

    metric: Metric
    label_values: tuple[tuple[str, ...], ...]
    first_cell: int
    width: int
    first_exemplar: int = -1

    def number_of(self, values: Sequence[str]) -> int:
        """Return the position of a combination of label values. Raises ValueError if there is no
        such combination."""
        if len(values) != len(self.label_values):
            names = tuple(label.name for label in self.metric.labels)
            raise ValueError(f"{self.metric.name} has labels {names}, got {tuple(values)}")
        number = 0
        for value, allowed in zip(values, self.label_values, strict=True):
            if value not in allowed:
                raise ValueError(f"{self.metric.name} cannot have the label value {value!r}")
            number = number * len(allowed) + allowed.index(value)
        return number

    def combinations(self) -> Iterator[tuple[str, ...]]:
        return itertools.product(*self.label_values)

    @property
    def cells(self) -> int:
        size = self.width
        for values in self.label_values:
            size *= len(values)
        return size


class LedgerLayout:
    """``models``: the names the server answers to, the engine's own first. ``label_values``: of
    labels whose values are only known at run time, by name. ``open_requests``: rows of the table of
    open requests, see ``observability.open_requests``. ``usage_rows``: of the table of usage, see
    ``observability.usage_table``. ``ring_bytes``: of ``observability.byte_ring``. ``key_names``:
    how many aliases may be learned, see ``observability.key_names``. ``engines``: those whose
    totals are kept."""

    def __init__(
        self,
        models: Sequence[str],
        label_values: Mapping[str, Sequence[str]] = NO_LABEL_VALUES,
        *,
        metrics: Sequence[Metric] = catalogue.METRICS,
        open_requests: int = 0,
        usage_rows: int = 0,
        ring_bytes: int = 0,
        key_names: int = 0,
        engines: int = 1,
    ) -> None:
        self._models = tuple(dict.fromkeys(models))
        self._label_values = {name: tuple(values) for name, values in label_values.items()}
        self.families: dict[str, FamilyLayout] = {}
        self.cells = 0
        self.exemplars = 0
        for metric in metrics:
            self._place(metric)
        # Of each engine: which process was last heard, and of each of its totals the value of all
        # processes before it, and its own.
        fields = [total.field for metric in catalogue.METRICS for total in metric.totals]
        self.engine_fields = tuple(fields)
        self.engines = engines
        self.engine_width = ENGINE_HEAD + 2 * len(fields)
        self.engine_cells = self._take(engines * self.engine_width)
        self.alive_cell = self._take(1)
        self.open_requests = open_requests
        self.request_cells = self._take(open_requests)
        self.usage_rows = usage_rows
        self.usage_cells = self._take(USAGE_HEAD + usage_rows * USAGE_WIDTH)
        self.ring_bytes = ring_bytes
        self.key_names = key_names
        self.ring_cells = self._take(RING_CELLS)

    def _take(self, cells: int) -> int:
        first = self.cells
        self.cells += cells
        return first

    def _place(self, metric: Metric) -> None:
        if metric.kind is MetricKind.INFO:
            return  # text, which each worker sets again
        sets = tuple(self._values_of(metric, label) for label in metric.labels)
        buckets = len(metric.buckets) + 1
        is_histogram = metric.kind is MetricKind.HISTOGRAM
        has_exemplars = is_histogram and not metric.bulk
        family = FamilyLayout(
            metric,
            sets,
            self.cells,
            buckets + 1 if is_histogram else 1,
            self.exemplars if has_exemplars else -1,
        )
        self.families[metric.name] = family
        self._take(family.cells)
        if has_exemplars:
            self.exemplars += family.cells // family.width * buckets

    def _values_of(self, metric: Metric, label: Label) -> tuple[str, ...]:
        if label == catalogue.MODEL:
            return {
                Scope.PROCESS: (),
                Scope.ENGINE: self._models[:1],
                Scope.MODEL: self._models,
                Scope.REQUEST: (*self._models, OTHER_MODEL),
            }[metric.scope]
        values = label.values
        if values is None:
            rest = () if label.rest is None else (label.rest,)
            values = tuple(dict.fromkeys((*self._label_values.get(label.name, ()), *rest)))
        if not values:
            raise ValueError(f"{metric.name}: the values of label {label.name!r} are not known")
        return values

    @property
    def fingerprint(self) -> bytes:
        """A digest of all that decides what a cell means."""
        meaning = [
            (
                family.metric.name,
                family.metric.kind.value,
                family.metric.buckets,
                tuple(label.name for label in family.metric.labels),
                family.label_values,
                family.first_cell,
                family.first_exemplar,
            )
            for family in self.families.values()
        ]
        sizes = (self.open_requests, self.usage_rows, self.ring_bytes, self.cells, self.exemplars)
        rest = (_FORMAT, self.engine_fields, self.engines, *sizes, self.key_names)
        return hashlib.sha256(repr((meaning, rest)).encode()).digest()
