"""A metric's lines on the scrape page, in the Prometheus text format and in OpenMetrics.

Names and labels are rendered once. A page only adds numbers, and only to series whose cells changed
since the page before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from observability.combined import Numbers
from observability.ledger import exemplar_at, exemplar_moments
from observability.metric_kinds import Metric, MetricKind
from observability.series import InfoSeries


class FamilySample(NamedTuple):
    """``name``: with the suffix that a histogram's samples have."""

    name: str
    labels: Mapping[str, str]
    value: float


class FamilyText(Protocol):
    """One metric on the page."""

    def text(self, *, openmetrics: bool) -> str:
        """Return its lines, head and samples."""

    def samples(self) -> Iterator[FamilySample]:
        """Yield what ``text`` shows."""


# What OpenMetrics leaves out of a family's name.
_SUFFIXES = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def label_text(labels: Mapping[str, str]) -> str:
    # In prometheus_client's order, which tools that compare lines may rely on.
    inside = ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels))
    return f"{{{inside}}}" if inside else ""


def _head(name: str, kind: MetricKind, text: str, *, openmetrics: bool) -> str:
    """Return the lines HELP and TYPE. OpenMetrics names a family without the suffix of its samples;
    the text format has no infos, they are gauges of value 1."""
    shown = kind.value
    if openmetrics:
        name = name.removesuffix(_SUFFIXES.get(kind, ""))
        text = _escaped(text)
    else:
        shown = "gauge" if kind is MetricKind.INFO else shown
        text = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {shown}\n"


class FamilyHeads:
    """The head of a family in both formats."""

    __slots__ = ("_openmetrics", "_text")

    def __init__(self, name: str, kind: MetricKind, text: str) -> None:
        self._text = _head(name, kind, text, openmetrics=False)
        self._openmetrics = _head(name, kind, text, openmetrics=True)

    def __call__(self, *, openmetrics: bool) -> str:
        return self._openmetrics if openmetrics else self._text


class ScalarText:
    """A counter or gauge: a line for each series."""

    def __init__(self, metric: Metric, numbers: Numbers, first: int, cells: int) -> None:
        self._metric = metric
        self._heads = FamilyHeads(metric.name, metric.kind, metric.help)
        self._source = numbers
        self._first, self._count = first, cells
        self._series: dict[int, Mapping[str, str]] = {}  # labels by cell
        self._lines: list[tuple[int, str]] = []  # cell, and the line up to its value
        self._before: tuple[bytes, str] = b"", ""

    def add(self, cell: int, labels: Mapping[str, str]) -> None:
        self._series[cell] = labels
        self._lines.append((cell, f"{self._metric.name}{label_text(labels)} "))
        self._before = b"", ""

    def text(self, *, openmetrics: bool) -> str:
        raw, lines = self._before
        now = self._source.raw(self._first, self._count)
        if now != raw or not raw:
            first, values = self._first, self._source.numbers(self._first, self._count)
            lines = "".join(
                [
                    f"{line}{value!r}\n"
                    for cell, line in self._lines
                    if (value := values[cell - first]) == value  # a series without a value is NaN
                ]
            )
            self._before = now, lines
        return self._heads(openmetrics=openmetrics) + lines

    def samples(self) -> Iterator[FamilySample]:
        values = self._source.numbers(self._first, self._count)
        for cell, labels in self._series.items():
            value = values[cell - self._first]
            if value == value:
                yield FamilySample(self._metric.name, labels, value)


def histogram_template(name: str, labels: Mapping[str, str], bounds: Sequence[str]) -> str:
    """Return the lines of a histogram's series, ``%s`` in place of each number."""
    own = _literal(label_text(labels))
    buckets = (_literal(label_text({**labels, "le": le})) for le in bounds)
    lines = [f"{name}_bucket{bucket} %s\n" for bucket in buckets]
    return "".join([*lines, f"{name}_count{own} %s\n", f"{name}_sum{own} %s\n"])


def _literal(text: str) -> str:
    return text.replace("%", "%%")  # a model's name may contain one


class _HistogramLines:
    """One series of a histogram."""

    def __init__(
        self,
        metric: Metric,
        numbers: Numbers,
        first: int,
        exemplars: int,
        labels: Mapping[str, str],
    ) -> None:
        self._source = numbers
        self._first = first
        self._name = metric.name
        self._labels = labels
        self._bounds = [*(repr(float(bound)) for bound in metric.buckets), "+Inf"]
        self._exemplars = exemplars
        self._template = histogram_template(metric.name, labels, self._bounds)
        self._plain: tuple[bytes, str] = b"", ""
        self._linked: tuple[bytes, str] = b"", ""
        self._moments = [0.0] * len(self._bounds)  # of the exemplars that ``_links`` shows
        self._links = [""] * len(self._bounds)

    def text(self) -> str:
        before, lines = self._plain
        raw = self._raw()
        if raw != before:
            counts, total = self._numbers()
            lines = self._template % (*map(repr, counts), repr(counts[-1]), repr(total))
            self._plain = raw, lines
        return lines

    def linked_text(self) -> str:
        """Return the lines with exemplars."""
        if self._exemplars < 0:
            return self.text()
        before, lines = self._linked
        buckets = len(self._bounds)
        exemplars = self._source.raw_exemplars(self._exemplars, buckets)
        raw = self._raw() + exemplars
        if raw != before:
            if any(exemplars):
                self._link(exemplars)
                counts, total = self._numbers()
                linked = [
                    f"{count!r}{link}" for count, link in zip(counts, self._links, strict=True)
                ]
                lines = self._template % (*linked, repr(counts[-1]), repr(total))
            else:
                lines = self.text()
            self._linked = raw, lines
        return lines

    def _link(self, exemplars: bytes) -> None:
        """Render the exemplars that are new."""
        moments = exemplar_moments(exemplars)
        for bucket, (before, now) in enumerate(zip(self._moments, moments, strict=True)):
            if now != before:
                trace_id, value, moment = exemplar_at(exemplars, bucket)
                self._links[bucket] = f' # {{trace_id="{trace_id:032x}"}} {value!r} {moment:.3f}'
        self._moments = moments

    def _raw(self) -> bytes:
        return self._source.raw(self._first, len(self._bounds) + 1)

    def _numbers(self) -> tuple[list[float], float]:
        """Return the cumulative counts and the sum."""
        *counts, total = self._source.numbers(self._first, len(self._bounds) + 1)
        return list(itertools.accumulate(counts)), total

    def samples(self) -> Iterator[FamilySample]:
        counts, total = self._numbers()
        for le, count in zip(self._bounds, counts, strict=True):
            yield FamilySample(f"{self._name}_bucket", {**self._labels, "le": le}, count)
        yield FamilySample(f"{self._name}_count", self._labels, counts[-1])
        yield FamilySample(f"{self._name}_sum", self._labels, total)


class HistogramText:
    def __init__(self, metric: Metric, numbers: Numbers) -> None:
        self._metric = metric
        self._heads = FamilyHeads(metric.name, metric.kind, metric.help)
        self._source = numbers
        self._series: list[_HistogramLines] = []

    def add(self, first: int, exemplars: int, labels: Mapping[str, str]) -> None:
        self._series.append(_HistogramLines(self._metric, self._source, first, exemplars, labels))

    def text(self, *, openmetrics: bool) -> str:
        if openmetrics:
            lines = [series.linked_text() for series in self._series]
        else:
            lines = [series.text() for series in self._series]
        return self._heads(openmetrics=openmetrics) + "".join(lines)

    def samples(self) -> Iterator[FamilySample]:
        for series in self._series:
            yield from series.samples()


class InfoText:
    def __init__(self, metric: Metric, series: InfoSeries) -> None:
        self._metric = metric
        self._heads = FamilyHeads(metric.name, metric.kind, metric.help)
        self._series = series

    def text(self, *, openmetrics: bool) -> str:
        lines = [
            f"{name}{label_text(labels)} {value!r}\n" for name, labels, value in self.samples()
        ]
        return self._heads(openmetrics=openmetrics) + "".join(lines)

    def samples(self) -> Iterator[FamilySample]:
        if self._series.facts is not None:
            yield FamilySample(self._metric.name, self._series.facts, 1.0)
