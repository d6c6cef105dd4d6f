"""A /metrics page becomes numbers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dashboard.exposition import Series, parse


def page_text() -> str:
    registry = CollectorRegistry()
    Gauge("depth", "Queue depth.", ["reason"], registry=registry).labels("slots").set(3)
    Counter("tokens", "Tokens.", ["model"], registry=registry).labels("a").inc(7)
    Histogram("lag_seconds", "Lag.", buckets=(0.1, 1), registry=registry).observe(0.5)
    return generate_latest(registry).decode()


def test_gauges_and_growing_series_are_told_apart() -> None:
    page = parse(page_text())
    assert page.gauges == {Series("depth", (("reason", "slots"),)): 3}
    assert page.cumulative[Series("tokens_total", (("model", "a"),))] == 7
    assert page.cumulative[Series("lag_seconds_bucket", (), "0.1")] == 0
    assert page.cumulative[Series("lag_seconds_bucket", (), "1.0")] == 1
    assert page.cumulative[Series("lag_seconds_bucket", (), "+Inf")] == 1
    assert page.cumulative[Series("lag_seconds_sum", ())] == 0.5


def test_times_of_creation_are_no_measurement() -> None:
    page = parse(page_text())
    assert not [series for series in (*page.gauges, *page.cumulative) if "_created" in series.name]


def test_only_the_families_asked_for_are_kept() -> None:
    page = parse(page_text(), {"tokens_total"})
    assert page.gauges == {}
    assert {series.name for series in page.cumulative} == {"tokens_total"}


def test_a_page_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse("<html>404 not found</html>")
