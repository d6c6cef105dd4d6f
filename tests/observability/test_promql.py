"""Queries name only what the catalogue has."""

from __future__ import annotations

import pytest

from observability import catalogue
from observability.promql import Queries, bound_text, ratio

QUERIES = Queries(('job="q"',), 'model="m"', "1m")


def test_selectors_have_the_filters_and_the_model_only_where_there_is_one() -> None:
    assert QUERIES.series(catalogue.PREEMPTIONS) == 'quire_preemptions_total{job="q",model="m"}'
    assert QUERIES.series(catalogue.REQUESTS_RECEIVED, route="none") == (
        'quire_requests_received_total{job="q",route="none"}'
    )
    assert Queries().series(catalogue.PREEMPTIONS) == "quire_preemptions_total"


def test_several_values_become_a_regular_expression() -> None:
    assert QUERIES.rate(catalogue.PROMPT_TOKENS, by="job", source=("computed", "cached")) == (
        "sum by (job) (rate(quire_prompt_tokens_total"
        '{job="q",model="m",source=~"computed|cached"}[1m]))'
    )


def test_quantiles_means_and_attainment_read_the_histograms_samples() -> None:
    lag = catalogue.EVENT_LOOP_LAG_SECONDS
    name = 'quire_event_loop_lag_seconds_{}{{job="q"{}}}[5m]'
    five = QUERIES.over("5m")
    assert five.quantile(0.5, lag, by="instance") == (
        f"histogram_quantile(0.5, sum by (le, instance) (rate({name.format('bucket', '')})))"
    )
    count = f"(sum(rate({name.format('count', '')})) > 0)"
    assert five.mean(lag) == f"sum(rate({name.format('sum', '')})) / {count}"
    within = name.format("bucket", ',le="0.1"')
    assert five.attained(lag, bound_text(0.1)) == f"sum(rate({within})) / {count}"


def test_gauges_and_increases() -> None:
    assert Queries().gauge(catalogue.KV_USAGE_RATIO, how="max") == "max(quire_kv_usage_ratio)"
    assert Queries().increase(catalogue.HANDOVERS) == "sum(increase(quire_handovers_total[5m]))"
    assert ratio("a", "b") == "a / (b > 0)"


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"sort": "x"}, "does not have the label sort"),
        ({"source": "guessed"}, "cannot be 'guessed'"),
        ({"source": ("cached", "guessed")}, "cannot be 'guessed'"),
        ({"le": "2.0"}, "only the buckets"),
    ],
)
def test_what_a_metric_does_not_have_is_refused(labels: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        QUERIES.series(catalogue.PROMPT_TOKENS, **labels)


def test_a_bound_between_two_buckets_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot be '2.1'"):
        QUERIES.series(catalogue.TIME_TO_FIRST_TOKEN, "_bucket", le="2.1")
    with pytest.raises(ValueError, match="no samples with the suffix"):
        QUERIES.series(catalogue.TIME_TO_FIRST_TOKEN)
    assert 'le="$slo"' in QUERIES.series(catalogue.TIME_TO_FIRST_TOKEN, "_bucket", le="$slo")
