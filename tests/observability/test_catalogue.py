"""The catalogue keeps the rules that Prometheus and its readers expect."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.messages import StepPhase
from observability import catalogue, schema
from observability.metric_kinds import Metric, MetricKind, Scope
from observability.outcomes import OUTCOMES, ROUTES


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_metric_names_include_kind_and_unit(metric: Metric) -> None:
    assert metric.name.startswith("quire_")
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is MetricKind.INFO)
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_a_model_unless_it_is_the_processs_own(metric: Metric) -> None:
    assert (catalogue.MODEL in metric.labels) == (metric.scope is not Scope.PROCESS)
    assert metric.kind is MetricKind.COUNTER or not metric.totals


def test_the_engine_and_the_table_have_the_same_phases() -> None:
    phase = next(label for label in catalogue.STEP_SECONDS.labels if label.name == "phase")
    assert phase.values == tuple(map(str, StepPhase))


def test_names_are_declared_once() -> None:
    for names in (
        [metric.name for metric in catalogue.METRICS],
        [span.name for span in schema.SPANS],
        [field.name for field in schema.REQUEST_LOG_FIELDS],
        [outcome.name for outcome in OUTCOMES],
        list(ROUTES),
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


def test_objectives_of_seconds_are_bounds() -> None:
    """Neighbours are so near that a quantile between them is off by a third at most, mostly far
    less."""
    objectives = {1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7.5, 10}
    for metric in (catalogue.TIME_TO_FIRST_TOKEN, catalogue.E2E_SECONDS):
        within = {bound for bound in metric.buckets if 1 <= bound <= 10}
        assert within == objectives
