"""Series write the cells that the page reads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from observability import catalogue
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from observability.series import (
    BulkHistogramSeries,
    CounterSeries,
    GaugeSeries,
    HistogramSeries,
    InfoSeries,
)

BOUNDS = catalogue.INTER_TOKEN_LATENCY.buckets
FIRST = 3


@pytest.fixture
def ledger() -> WorkerLedger:
    return WorkerLedger(LedgerLayout(["m"], metrics=[catalogue.E2E_SECONDS]))


values = st.lists(
    st.sampled_from((0.0, 0.001, 0.0015, 0.003, 0.0999, 0.1, 10.0, 11.0)) | st.floats(0, 20)
)


@given(values, st.integers(1, 4))
def test_both_histograms_count_as_prometheus_own_does(observed: list[float], times: int) -> None:
    ledger = WorkerLedger(LedgerLayout(["m"]))
    bulk = BulkHistogramSeries(ledger, FIRST, BOUNDS)
    exact = HistogramSeries(ledger, FIRST + len(BOUNDS) + 2, BOUNDS, 0)
    oracle = Histogram("h", "h", buckets=BOUNDS, registry=CollectorRegistry())
    for value in observed:
        bulk.observe(value, times)
        for _ in range(times):
            exact.observe(value)
            oracle.observe(value)
    [family] = oracle.collect()
    expected = [s.value for s in family.samples if s.name == "h_bucket"]
    total = next(s.value for s in family.samples if s.name == "h_sum")
    for first in (FIRST, FIRST + len(BOUNDS) + 2):
        counts = ledger.cells[first : first + len(BOUNDS) + 1].tolist()
        assert [sum(counts[: n + 1]) for n in range(len(counts))] == expected
        assert ledger.cells[first + len(counts)] == pytest.approx(total)
    assert bulk.total == pytest.approx(total)


def test_a_counter_rises_and_can_continue_a_total(ledger: WorkerLedger) -> None:
    counter = CounterSeries(ledger, 1)
    counter.inc()
    counter.inc(2.5)
    assert ledger.cells[1] == 3.5
    counter.hide()
    assert math.isnan(ledger.cells[1])
    counter.continue_at(100)
    assert ledger.cells[1] == 100
    with pytest.raises(ValueError, match="fall"):
        counter.inc(-1)


def test_a_gauge_is_set_moved_or_read(ledger: WorkerLedger) -> None:
    gauge = GaugeSeries(ledger, 0)
    gauge.set(5)
    gauge.inc()
    gauge.dec(4)
    gauge.refresh()
    assert gauge.value == 2
    gauge.set_function(lambda: 7)
    assert gauge.value == 2
    gauge.refresh()
    assert gauge.value == 7
    gauge.set_function(lambda: None)
    gauge.refresh()
    assert math.isnan(gauge.value)  # and so absent
    gauge.set(1)
    assert gauge.value == 1
    gauge.set(None)
    assert math.isnan(gauge.value)


def test_an_observation_in_a_transaction_is_made_at_its_end(ledger: WorkerLedger) -> None:
    series = HistogramSeries(ledger, 0, catalogue.E2E_SECONDS.buckets, 0)
    with ledger:
        series.observe(0.3)
        assert not any(ledger.cells)
    assert sum(ledger.cells) == pytest.approx(1.3)


def test_an_info_is_what_was_said_last() -> None:
    info = InfoSeries()
    info.info({"a": "1"})
    info.info({"a": "2"})
    assert info.facts == {"a": "2"}
