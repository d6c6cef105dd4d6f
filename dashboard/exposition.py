"""The text of a ``/metrics`` page as plain numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
"""Label pairs in order of their names, without ``le``."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series. ``bound`` is a histogram bucket's upper bound as the page writes it
    (``"0.5"``, ``"+Inf"``), and empty for anything else."""

    name: str
    labels: Labels
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One scrape. ``cumulative`` holds the series that only ever grow while a process lives:
    counters, and buckets, sums and counts of histograms."""

    gauges: dict[Series, float]
    cumulative: dict[Series, float]


def parse(text: str, families: Collection[str] | None = None) -> Page:
    """Read Prometheus' text format. ``families``: metric names to keep (a counter's with its
    ``_total``), or None for all.

    Raises ValueError when the text is not in that format.
    """
    gauges: dict[Series, float] = {}
    cumulative: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if families is not None and name not in families:
            continue
        target = cumulative if family.type in ("counter", "histogram") else gauges
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            labels = tuple(sorted(pair for pair in sample.labels.items() if pair[0] != "le"))
            target[Series(sample.name, labels, sample.labels.get("le", ""))] = sample.value
    return Page(gauges, cumulative)
