"""Nothing is declared that no code uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability import catalogue, connection_metrics, queue_metrics, schema, store_metrics
from observability.metric_kinds import Metric, MetricKind, Scope
from observability.outcomes import OUTCOMES, ROUTES

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))
NAMES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (catalogue, queue_metrics, store_metrics, connection_metrics)
    for name, value in vars(module).items()
    if isinstance(value, Metric)
}


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_written(name: str) -> None:
    metric = NAMES[name]
    # These two kinds are written by going over the table.
    by_table = metric.totals or (
        metric.kind is MetricKind.HISTOGRAM and metric.scope in (Scope.MODEL, Scope.REQUEST)
    )
    assert by_table or name in SERVICE


@pytest.mark.parametrize("word", [*ROUTES, *(outcome.name for outcome in OUTCOMES)])
def test_every_route_and_outcome_is_in_use(word: str) -> None:
    assert f'"{word}"' in SERVICE


@pytest.mark.parametrize("name", [name for name in vars(schema) if name.startswith("ATTR_")])
def test_every_attribute_is_written(name: str) -> None:
    assert f"schema.{name}" in SERVICE
