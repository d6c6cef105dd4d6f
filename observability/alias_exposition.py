"""The lines of aliases on the scrape page, summed from the cells of the metrics that they name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from observability.aliases import Alias, InfoAlias, alias_labels, info_labels
from observability.catalogue import MODEL, OTHER_MODEL
from observability.combined import Numbers, WorkerNumbers
from observability.exposition import FamilyHeads, histogram_template, label_text
from observability.layout import FamilyLayout
from observability.metric_kinds import MetricKind
from observability.promql import bound_text
from observability.series import InfoSeries


class _Sums:
    """The alias's series, each cell of it the sum of several of the source's."""

    def __init__(self, alias: Alias, layout: FamilyLayout) -> None:
        self._width = layout.width
        self._firsts = [
            layout.first_cell + number * layout.width
            for number, values in enumerate(layout.combinations())
            if _is_part(alias, layout, values)
        ]

    def of(self, source: Numbers) -> list[float]:
        """Return the series' cells."""
        parts = [source.numbers(first, self._width) for first in self._firsts]
        return [sum(column) for column in zip(*parts, strict=True)]


def _is_part(alias: Alias, layout: FamilyLayout, values: Sequence[str]) -> bool:
    for label, value in zip(layout.metric.labels, values, strict=True):
        if value not in alias.where.get(label.name, (value,)):
            return False
        # vLLM counts no request that names no model it serves.
        if alias.names_model and label == MODEL and value == OTHER_MODEL:
            return False
    return True


class AliasText:
    """All series of one name."""

    def __init__(
        self,
        aliases: Sequence[Alias],
        layouts: Mapping[str, FamilyLayout],
        source: Numbers,
        model: str,
    ) -> None:
        first = aliases[0]
        layout = layouts[first.source.name]
        self._heads = FamilyHeads(first.name, first.kind, first.help)
        self._source = source
        self._range = layout.first_cell, layout.cells
        self._series = [
            (_template(each, model), _Sums(each, layout), each.shown) for each in aliases
        ]
        self._is_histogram = first.kind is MetricKind.HISTOGRAM
        self._before: tuple[bytes, str] = b"", ""

    def text(self, *, openmetrics: bool) -> str:
        before, lines = self._before
        now = self._source.raw(*self._range)
        if now != before or not before:
            lines = "".join(
                self._lines(template, sums.of(self._source), shown)
                for template, sums, shown in self._series
            )
            self._before = now, lines
        return self._heads(openmetrics=openmetrics) + lines

    def _lines(self, template: str, cells: list[float], shown: float | None) -> str:
        if not self._is_histogram:
            (value,) = cells
            if shown is not None:
                return f"{template}{shown!r}\n" if value else ""
            # A counter whose value is not known yet is NaN, and not shown.
            return f"{template}{value!r}\n" if value == value else ""
        *counts, total = cells
        cumulated = list(map(repr, itertools.accumulate(counts)))
        return template % (*cumulated, cumulated[-1], repr(total))


def _template(alias: Alias, model: str) -> str:
    """Return what the numbers of a series are put into: of a histogram a template, else the line up
    to its value."""
    labels = alias_labels(alias, model)
    if alias.kind is not MetricKind.HISTOGRAM:
        return f"{alias.name}{label_text(labels)} "
    bounds = [*map(bound_text, alias.source.buckets), "+Inf"]
    return histogram_template(alias.name, labels, bounds)


class InfoAliasText:
    def __init__(self, alias: InfoAlias, series: InfoSeries) -> None:
        self._alias = alias
        self._heads = FamilyHeads(alias.name, MetricKind.GAUGE, alias.help)
        self._series = series

    def text(self, *, openmetrics: bool) -> str:
        facts = self._series.facts
        if facts is None:
            return self._heads(openmetrics=openmetrics)
        labels = label_text(info_labels(self._alias, facts))
        return f"{self._heads(openmetrics=openmetrics)}{self._alias.name}{labels} 1.0\n"


def alias_texts(
    aliases: Sequence[Alias | InfoAlias],
    layouts: Mapping[str, FamilyLayout],
    infos: Mapping[str, InfoSeries],
    workers: WorkerNumbers,
    model: str,
) -> Iterator[AliasText | InfoAliasText]:
    """Yield the text of each name. ``layouts`` and ``infos``: of the catalogue's metrics, by name.
    ``model``: the model's first name."""
    by_name: dict[str, list[Alias]] = {}
    for alias in aliases:
        if isinstance(alias, InfoAlias):
            yield InfoAliasText(alias, infos[alias.source.name])
        else:
            by_name.setdefault(alias.name, []).append(alias)
    for group in by_name.values():
        source = workers[group[0].source.combined]
        yield AliasText(group, layouts, source, model)
