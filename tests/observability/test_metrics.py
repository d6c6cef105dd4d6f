"""The catalogue's metrics as a scraper sees them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from observability import catalogue, outcomes
from observability.catalogue import OTHER_MODEL, MetricKind
from observability.metrics import BulkHistogram, MetricRegistry

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def base_name(metric: catalogue.Metric) -> str:
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
    for model in ("m", "alias", OTHER_MODEL):
        for route in outcomes.ROUTES:
            for outcome in catalogue.OUTCOME.values or ():
                labels = {"model": model, "route": route, "outcome": outcome}
                assert metrics.sample(catalogue.REQUESTS, labels) == 0
    for phase in ("prefill", "decode", "mixed"):
        labels = {"model": "m", "phase": phase}
        assert metrics.sample(catalogue.STEP_SECONDS, labels, "_count") == 0
    assert metrics.sample(catalogue.INTER_TOKEN_LATENCY, {"model": "m"}, "_count") == 0
    # The engine runs one model, under its first name.
    assert metrics.sample(catalogue.SEQUENCES_RUNNING, {"model": "alias"}) is None


def test_the_process_itself_is_on_the_page() -> None:
    page, _ = MetricRegistry(["m"]).exposition(None)
    for name in ("process_resident_memory_bytes", "process_open_fds", "python_gc_collections"):
        assert f"\n{name}" in page.decode()


def test_exemplars_are_shown_to_scrapers_that_ask_for_openmetrics_and_to_no_other() -> None:
    metrics = MetricRegistry(["m"])
    trace = "0af7651916cd43dd8448eb211c80319c"
    metrics[catalogue.TIME_TO_FIRST_TOKEN].labels("m").observe(0.3, {"trace_id": trace})
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


values_in_batches = st.lists(
    st.lists(
        st.sampled_from((0.0, 0.001, 0.0015, 0.003, 0.0999, 0.1, 10.0, 11.0)) | st.floats(0, 20)
    ),
    max_size=5,
)


@given(values_in_batches)
def test_bulk_histogram_counts_as_prometheus_own_histogram_does(batches: list[list[float]]) -> None:
    metric = catalogue.INTER_TOKEN_LATENCY
    oracle = Histogram(
        metric.name, metric.help, ("model",), buckets=metric.buckets, registry=CollectorRegistry()
    )
    registry = CollectorRegistry()
    bulk = BulkHistogram(metric, registry)
    bulk.labels("m")
    oracle.labels("m")
    for batch in batches:
        for value in batch:
            bulk.labels("m").observe(value)
            oracle.labels("m").observe(value)
    expected = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in oracle.collect()
        for sample in family.samples
    }
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in bulk.collect()
        for sample in family.samples
    }
    total = f"{metric.name}_sum", None
    assert found.pop(total) == pytest.approx(expected.pop(total))
    assert found == expected


def test_bulk_histogram_refuses_labels_that_do_not_fit() -> None:
    bulk = BulkHistogram(catalogue.INTER_TOKEN_LATENCY, CollectorRegistry())
    with pytest.raises(ValueError, match="labels"):
        bulk.labels("m", "extra")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is missing")
def test_promtool_finds_nothing_wrong_with_the_page() -> None:
    page, _ = MetricRegistry(["m"]).exposition(None)
    own = b"\n".join(line for line in page.splitlines() if b"quire_" in line) + b"\n"
    checked = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
