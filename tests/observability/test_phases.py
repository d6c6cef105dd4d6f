"""The table of phases, and everything that is read from it."""

from __future__ import annotations

from observability import catalogue, schema
from observability.metric_kinds import Scope
from observability.phases import PHASES


def test_metric_spans_and_log_have_each_phase_once() -> None:
    names = tuple(phase.name for phase in PHASES)
    assert len(set(names)) == len(names) == 8
    (label,) = (each for each in catalogue.PHASE_SECONDS.labels if each.name == "phase")
    assert label.values == names
    assert tuple(schema.PHASE_SPANS) == names
    logged = [field.name for field in schema.REQUEST_LOG_FIELDS if field.name.endswith("_ms")]
    assert tuple(logged[: len(names)]) == tuple(f"{name}_ms" for name in names)


def test_a_name_of_the_model_costs_few_series() -> None:
    """Those of metrics that have the label besides quire_requests_total. The engine's exist once,
    under the first name."""
    series = 0
    for metric in catalogue.METRICS:
        if metric.scope in (Scope.PROCESS, Scope.ENGINE) or metric is catalogue.REQUESTS:
            continue
        combinations = 1
        for label in metric.labels:
            combinations *= 1 if label is catalogue.MODEL else len(label.values or (0,))
        series += combinations * (len(metric.buckets) + 3 if metric.buckets else 1)
    assert series < 240
