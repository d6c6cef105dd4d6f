"""What a request adds to histograms and counters."""

from __future__ import annotations

from typing import Any

import pytest

from observability import catalogue
from observability.metric_kinds import Metric
from observability.metrics import MetricRegistry
from service.telemetry.observations import RequestObservations
from service.telemetry.requests import Telemetry
from tests.service.request_records import answered, sequence


@pytest.fixture
def metrics() -> MetricRegistry:
    return MetricRegistry(["m"], label_values={catalogue.KEY.name: ["team"]})


def observe(metrics: MetricRegistry, **changes: Any) -> None:
    record = answered(Telemetry(["m"], version="1"), **changes)
    observations = RequestObservations(metrics, ["team"])
    with metrics.ledger:
        observations.first_token(record)
        observations.ended(record, 1000.1, {"queue": 0.004})


def sample(
    metrics: MetricRegistry, metric: Metric, suffix: str = "_sum", **labels: str
) -> float | None:
    return metrics.sample(metric, labels, suffix)


def test_a_request_is_observed_once_in_each_histogram(metrics: MetricRegistry) -> None:
    observe(metrics, sequences=[sequence(preemptions=2), sequence(handovers=1)])
    expected = {
        catalogue.TIME_TO_FIRST_TOKEN: 0.041,
        catalogue.E2E_SECONDS: 0.1,
        catalogue.REQUEST_PROMPT_TOKENS: 20,
        catalogue.REQUEST_GENERATED_TOKENS: 11,
        catalogue.REQUEST_PREEMPTIONS: 2,
        catalogue.TIME_PER_OUTPUT_TOKEN: 0.005,
        catalogue.REQUEST_UNCACHED_TOKENS: 4,
        catalogue.REQUEST_LONGEST_CHOICE: 11,
    }
    for metric, value in expected.items():
        assert sample(metrics, metric, model="m") == pytest.approx(value)
        assert sample(metrics, metric, "_count", model="m") == 1
    spent = sample(metrics, catalogue.ROUTE_SECONDS, route="chat_completions")
    assert spent == pytest.approx(0.1)
    assert sample(metrics, catalogue.ROUTE_SECONDS, "_count", route="completions") is None
    queued = sample(metrics, catalogue.PHASE_SECONDS, model="m", phase="queue")
    assert queued == pytest.approx(0.004)
    assert sample(metrics, catalogue.HANDOVERS, "", model="m") == 1


def test_a_model_that_is_not_served_is_only_in_what_counts_all_requests(
    metrics: MetricRegistry,
) -> None:
    observe(metrics, model="", sequences=[])
    assert sample(metrics, catalogue.E2E_SECONDS, "_count", model="other") == 1
    for metric in (catalogue.TIME_TO_FIRST_TOKEN, catalogue.REQUEST_PROMPT_TOKENS):
        assert not sample(metrics, metric, "_count", model="m")


@pytest.mark.parametrize(("key", "label"), [("team", "team"), (None, "other"), ("x", "other")])
def test_tokens_are_counted_by_key(metrics: MetricRegistry, key: str | None, label: str) -> None:
    observe(metrics, key=key)
    counted = {
        kind: sample(metrics, catalogue.KEY_TOKENS, "", key=label, kind=kind)
        for kind in ("prompt", "cached", "output")
    }
    assert counted == {"prompt": 4, "cached": 16, "output": 11}


def test_what_the_engine_never_ran_is_counted_for_no_key(metrics: MetricRegistry) -> None:
    never = sequence(first_scheduled_time=None, first_token_time=None, last_token_time=None)
    observe(metrics, key="team", sequences=[never])
    assert not sample(metrics, catalogue.KEY_TOKENS, "", key="team", kind="prompt")
    assert sample(metrics, catalogue.REQUEST_UNCACHED_TOKENS, "_count", model="m") == 0


def test_choices_of_a_request_have_one_mean_gap_and_the_longest_is_its_own(
    metrics: MetricRegistry,
) -> None:
    short = sequence(output_tokens=3, last_token_time=1000.070)
    single = sequence(output_tokens=1, last_token_time=1000.040)
    observe(metrics, sequences=[sequence(), short, single])
    assert sample(metrics, catalogue.TIME_PER_OUTPUT_TOKEN, model="m") == pytest.approx(0.08 / 12)
    assert sample(metrics, catalogue.REQUEST_LONGEST_CHOICE, model="m") == 11
    assert sample(metrics, catalogue.TIME_PER_OUTPUT_TOKEN, "_count", model="m") == 1


@pytest.mark.parametrize(
    "changes",
    [{"sequences": [sequence(output_tokens=1, last_token_time=1000.040)]}, {"generates": False}],
)
def test_without_two_tokens_there_is_no_time_between_them(
    metrics: MetricRegistry, changes: dict[str, Any]
) -> None:
    observe(metrics, **changes)
    assert sample(metrics, catalogue.TIME_PER_OUTPUT_TOKEN, "_count", model="m") == 0


def test_requests_for_any_name_count_under_the_first_where_the_engine_is_meant() -> None:
    metrics = MetricRegistry(["m", "alias"], label_values={catalogue.KEY.name: ["team"]})
    observe(metrics, model="alias")
    for metric in (catalogue.TIME_PER_OUTPUT_TOKEN, catalogue.REQUEST_LONGEST_CHOICE):
        assert sample(metrics, metric, "_count", model="m") == 1
    assert sample(metrics, catalogue.REQUEST_GENERATED_TOKENS, "_count", model="alias") == 1
