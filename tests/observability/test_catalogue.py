"""The catalogue keeps the rules that Prometheus and its readers expect."""

from __future__ import annotations

import subprocess
import sys

import pytest

from observability import catalogue
from observability.catalogue import Kind, Metric


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_metric_names_tell_kind_and_unit(metric: Metric) -> None:
    assert metric.name.startswith("quire_")
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is Kind.INFO)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_names_are_declared_once() -> None:
    for names in (
        [metric.name for metric in catalogue.METRICS],
        [span.name for span in catalogue.SPANS],
        [field.name for field in catalogue.REQUEST_LOG_FIELDS],
    ):
        assert len(names) == len(set(names))


def test_any_room_may_read_the_catalogue_for_it_imports_the_standard_library_only() -> None:
    script = (
        "import sys; import observability.catalogue;"
        "print([m for m in sys.modules if m.split('.')[0] not in sys.stdlib_module_names"
        " and m.split('.')[0] not in ('__main__', 'observability')])"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
