"""Lines of single metrics; whole pages are compared with the library's in test_metrics.py."""

from __future__ import annotations

import pytest

from observability import catalogue
from observability.exposition import HistogramText, InfoText, ScalarText
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from observability.metric_kinds import Label, Metric, MetricKind, Scope
from observability.series import ABSENT, InfoSeries

COUNTER = Metric(
    "quire_x_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    'A \\ and "it".\nMore.',
    (Label("a", ("1",)),),
)
HISTOGRAM = Metric(
    "quire_h", MetricKind.HISTOGRAM, Scope.PROCESS, "How long.", (Label("a", ("1",)),), (0.5, 2)
)


@pytest.fixture
def ledger() -> WorkerLedger:
    return WorkerLedger(LedgerLayout(["m"], metrics=[COUNTER, HISTOGRAM]))


def test_names_in_the_head_are_those_of_each_format(ledger: WorkerLedger) -> None:
    text = ScalarText(COUNTER, ledger, 0, 1)
    assert text.text(openmetrics=False) == (
        '# HELP quire_x_total A \\\\ and "it".\\nMore.\n# TYPE quire_x_total counter\n'
    )
    assert text.text(openmetrics=True) == (
        '# HELP quire_x A \\\\ and \\"it\\".\\nMore.\n# TYPE quire_x counter\n'
    )


def test_a_scalars_line_is_new_when_its_cell_is(ledger: WorkerLedger) -> None:
    text = ScalarText(COUNTER, ledger, 0, 1)
    text.add(0, {"a": 'x"\\\ny'})
    line = 'quire_x_total{a="x\\"\\\\\\ny"} '
    for value in (0.0, 3.0, 3.0, 1e16):
        ledger.set(0, value)
        assert text.text(openmetrics=True).splitlines()[-1] == f"{line}{value!r}"
    ledger.set(0, ABSENT)
    assert line not in text.text(openmetrics=True)
    assert list(text.samples()) == []


def test_buckets_are_cumulative_and_exemplars_are_in_openmetrics_only(ledger: WorkerLedger) -> None:
    text = HistogramText(HISTOGRAM, ledger)
    text.add(1, 0, {"a": "1"})
    for cell, value in enumerate((2, 0, 1, 7.5), start=1):
        ledger.set(cell, value)
    plain = [
        'quire_h_bucket{a="1",le="0.5"} 2.0',
        'quire_h_bucket{a="1",le="2.0"} 2.0',
        'quire_h_bucket{a="1",le="+Inf"} 3.0',
        'quire_h_count{a="1"} 3.0',
        'quire_h_sum{a="1"} 7.5',
    ]
    assert text.text(openmetrics=True).splitlines()[2:] == plain
    for trace in (0xAB, 0xCD):  # the second replaces the first
        ledger.set_exemplar(2, trace, 6.5, 1e9 + trace)
        assert text.text(openmetrics=False).splitlines()[2:] == plain
        linked = [*plain]
        linked[2] += f' # {{trace_id="{trace:032x}"}} 6.5 {1e9 + trace:.3f}'
        assert text.text(openmetrics=True).splitlines()[2:] == linked
    assert [sample.value for sample in text.samples()] == [2, 2, 3, 3, 7.5]


def test_an_info_is_absent_until_it_is_known() -> None:
    series = InfoSeries()
    text = InfoText(catalogue.BUILD_INFO, series)
    assert text.text(openmetrics=True).splitlines()[1:] == ["# TYPE quire_build info"]
    series.info({"version": "1", "python": "3"})
    assert text.text(openmetrics=False).splitlines()[1:] == [
        "# TYPE quire_build_info gauge",
        'quire_build_info{python="3",version="1"} 1.0',
    ]


def test_a_percent_sign_in_a_label_is_literal(ledger: WorkerLedger) -> None:
    text = HistogramText(HISTOGRAM, ledger)
    text.add(1, 0, {"a": "50%s"})
    assert 'quire_h_count{a="50%s"} 0.0' in text.text(openmetrics=False).splitlines()
