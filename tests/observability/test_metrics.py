"""The catalogue's metrics as a scraper sees them."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from observability import catalogue
from observability.metric_kinds import Metric, MetricKind
from observability.metrics import MetricRegistry
from tests.examples import examples

disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def base_name(metric: Metric) -> str:
    """The name of a metric's family in the text format."""
    return metric.name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else metric.name


def test_every_metric_of_the_catalogue_is_on_the_page_with_its_type_and_help() -> None:
    page, content_type = MetricRegistry(["m"]).exposition(None)
    families = {family.name: family for family in parse_text(page.decode())}
    assert content_type.startswith("text/plain")
    for metric in catalogue.METRICS:
        family = families[base_name(metric)]
        # The text format has no info type: such metrics are gauges of value 1.
        assert family.type == ("gauge" if metric.kind is MetricKind.INFO else metric.kind.value)
        assert family.documentation == metric.help


def test_series_with_closed_labels_exist_at_zero_before_anything_happened() -> None:
    metrics = MetricRegistry(["m", "alias"])
    for phase in ("prefill", "decode", "mixed"):
        labels = {"model": "m", "phase": phase}
        assert metrics.sample(catalogue.STEP_SECONDS, labels, "_count") == 0
    assert metrics.sample(catalogue.INTER_TOKEN_LATENCY, {"model": "m"}, "_count") == 0
    assert metrics.sample(catalogue.E2E_SECONDS, {"model": "alias"}, "_count") == 0
    # The engine runs one model, under its first name.
    assert metrics.sample(catalogue.SEQUENCES_RUNNING, {"model": "alias"}) is None


def test_a_series_that_exists_on_use_is_counted_once_it_is_used() -> None:
    metrics = MetricRegistry(["m"])
    labels = {"model": "m", "route": "tokenize", "outcome": "tool_calls"}
    assert metrics.sample(catalogue.REQUESTS, labels) is None
    metrics[catalogue.REQUESTS].labels(*labels.values()).inc()
    assert metrics.sample(catalogue.REQUESTS, labels) == 1
    with pytest.raises(ValueError, match="nobody"):
        metrics[catalogue.REQUESTS].labels("m", "tokenize", "an outcome that nobody declared")


def test_a_gauge_can_be_read_when_the_page_is_made() -> None:
    metrics = MetricRegistry(["m"])
    gauge = metrics[catalogue.KV_USAGE_RATIO].labels("m")
    found: list[float | None] = [0.5, None, math.inf]
    gauge.set_function(lambda: found.pop(0))
    line = 'quire_kv_usage_ratio{model="m"} '
    pages = [metrics.exposition(None)[0].decode() for _ in range(3)]
    assert line + "0.5\n" in pages[0]
    assert line not in pages[1]
    assert line + "inf\n" in pages[2]


def test_the_process_itself_is_on_the_page() -> None:
    page, _ = MetricRegistry(["m"]).exposition(None)
    for name in ("process_resident_memory_bytes", "process_open_fds", "python_gc_collections"):
        assert f"\n{name}" in page.decode()


def test_exemplars_are_shown_to_scrapers_that_ask_for_openmetrics_and_to_no_other() -> None:
    metrics = MetricRegistry(["m"])
    trace = "0af7651916cd43dd8448eb211c80319c"
    metrics[catalogue.TIME_TO_FIRST_TOKEN].labels("m").observe(0.3, int(trace, 16))
    text, _ = metrics.exposition("text/plain; version=0.0.4")
    openmetrics, content_type = metrics.exposition(OPENMETRICS)
    assert trace not in text.decode()
    assert content_type.startswith("application/openmetrics-text")
    buckets = [
        sample
        for family in parse_openmetrics(openmetrics.decode())
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert [(sample.labels["le"], sample.exemplar.value) for sample in buckets] == [("0.3", 0.3)]
    assert buckets[0].exemplar.labels == {"trace_id": trace}


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("application/openmetrics-text;q=0,text/plain", False),
        ("text/plain;q=0.9,application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text; version=1.0.0; q=0.1", True),
        ("application/openmetrics-text;q=0", False),
        ("text/plain,application/openmetrics-text", True),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", False),
        # As Prometheus 2 and 3 send it.
        (
            "application/openmetrics-text;version=1.0.0;q=0.8,"
            "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,"
            "*/*;q=0.1",
            True,
        ),
    ],
)
def test_a_scraper_gets_the_format_that_it_likes_best(accept: str, openmetrics: bool) -> None:
    _, content_type = MetricRegistry(["m"]).exposition(accept)
    assert content_type.startswith("application/openmetrics-text") == openmetrics


MODELS = ("m", 'a "quoted" \\ name\nof two lines')
SCALARS = [m for m in catalogue.METRICS if m.kind in (MetricKind.COUNTER, MetricKind.GAUGE)]
HISTOGRAMS = [m for m in catalogue.METRICS if m.kind is MetricKind.HISTOGRAM]
amounts = st.floats(0, allow_nan=False) | st.sampled_from((0.0, 1.0, 1e16, 0.1, 3e-7))


class Change(NamedTuple):
    """``where``: reduced to a combination of label values that the metric has."""

    metric: Metric
    where: int
    value: float
    trace: int | None


changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(SCALARS + HISTOGRAMS),
        st.integers(0, 10_000),
        amounts,
        st.none() | st.integers(1, 2**128 - 1),
    ),
    max_size=25,
)


def oracle(seen: CollectorRegistry) -> dict[str, Any]:
    """The library's own metrics."""
    kinds = {MetricKind.COUNTER: Counter, MetricKind.GAUGE: Gauge, MetricKind.HISTOGRAM: Histogram}
    metrics = {}
    for metric in SCALARS + HISTOGRAMS:
        more = {"buckets": metric.buckets} if metric.kind is MetricKind.HISTOGRAM else {}
        names = [label.name for label in metric.labels]
        kind: Any = kinds[metric.kind]
        metrics[metric.name] = kind(metric.name, metric.help, names, registry=seen, **more)
    return metrics


Page = dict[str, tuple[str, str, dict[tuple[Any, ...], Any]]]


def parsed(page: bytes, parse: Callable[[str], Iterable[Any]]) -> Page:
    """Families by name: type, help, and samples with their exemplars."""
    families: Page = {}
    for family in parse(page.decode()):
        samples = {}
        for sample in family.samples:
            link = sample.exemplar and (sample.exemplar.labels, sample.exemplar.value)
            samples[sample.name, frozenset(sample.labels.items())] = sample.value, link
        assert len(samples) == len(family.samples)
        families[family.name] = family.type, family.documentation, samples
    return families


@given(changes)
@settings(max_examples=examples(20), deadline=None)
def test_both_formats_say_what_the_library_says_of_the_same_observations(
    made: list[Change],
) -> None:
    own, seen = MetricRegistry(MODELS), CollectorRegistry()
    theirs = oracle(seen)
    layout = own.ledger.layout
    for metric in SCALARS + HISTOGRAMS:
        for values in () if metric.on_use else layout.families[metric.name].combinations():
            if metric.labels:
                theirs[metric.name].labels(*values)
    for change in made:
        metric = change.metric
        places = list(layout.families[metric.name].combinations())
        values = places[change.where % len(places)]
        series = own[metric].labels(*values)
        other = theirs[metric.name].labels(*values) if metric.labels else theirs[metric.name]
        if metric.kind is MetricKind.HISTOGRAM:
            trace = None if metric.bulk else change.trace
            series.observe(change.value, *(() if trace is None else (trace,)))
            other.observe(change.value, trace and {"trace_id": f"{trace:032x}"})
        elif metric.kind is MetricKind.COUNTER:
            series.inc(change.value)
            other.inc(change.value)
        else:
            series.set(-change.value)
            other.set(-change.value)
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        page, _ = own.exposition(accept)
        again, _ = own.exposition(accept)
        found = parsed(page, parse)
        expected = parsed(choose_encoder(accept)[0](seen), parse)
        assert {name: found[name] for name in expected} == expected
        assert {name for name in set(found) - set(expected) if name.startswith("quire_")} <= {
            "quire_build_info",
            "quire_engine_info",
            "quire_build",
            "quire_engine",
        }
        assert parsed(again, parse).items() >= expected.items()


def test_the_samples_are_those_of_the_page() -> None:
    metrics = MetricRegistry(["m"])
    metrics[catalogue.BUILD_INFO].info({"version": "1", "python": "3"})
    metrics[catalogue.STEP_TOKENS].labels("m").observe(3, 4)
    page = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(metrics.exposition(None)[0].decode())
        for sample in family.samples
        if sample.name.startswith("quire_")
    }
    own = {(s.name, frozenset(s.labels.items())): s.value for s in metrics.samples()}
    assert own == page


@pytest.mark.parametrize("metric", [catalogue.INTER_TOKEN_LATENCY, catalogue.REQUESTS])
def test_labels_that_do_not_fit_are_refused(metric: Metric) -> None:
    with pytest.raises(ValueError, match="labels"):
        MetricRegistry(["m"])[metric].labels("m", "extra")


def test_a_counter_cannot_fall() -> None:
    with pytest.raises(ValueError, match="fall"):
        MetricRegistry(["m"])[catalogue.PREEMPTIONS].labels("m").inc(-1)


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is missing")
def test_promtool_finds_nothing_wrong_with_the_page() -> None:
    """It reads the text format only; OpenMetrics is read by a Prometheus in tests/e2e."""
    metrics = MetricRegistry(["m"])
    metrics[catalogue.BUILD_INFO].info({"version": "1", "python": "3"})
    metrics[catalogue.E2E_SECONDS].labels("m").observe(0.3, 0xABC)
    page, _ = metrics.exposition(None)
    own = b"\n".join(line for line in page.splitlines() if b"quire_" in line) + b"\n"
    checked = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
