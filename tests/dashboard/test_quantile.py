"""Quantiles out of buckets, where the answer can be worked out by hand. Agreement with
Prometheus itself is tested in test_promql.py."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.quantile import histogram_quantile

INF = math.inf


def test_inside_a_bucket_it_interpolates() -> None:
    # 10 observations up to 1, 10 more up to 2: the 15th of 20 is halfway through the second.
    assert histogram_quantile(0.75, [(1, 10), (2, 20), (INF, 20)]) == 1.5


def test_the_first_bucket_begins_at_zero() -> None:
    assert histogram_quantile(0.5, [(1, 10), (INF, 10)]) == 0.5


def test_beyond_the_last_bound_that_bound_is_all_that_is_known() -> None:
    assert histogram_quantile(0.95, [(1, 1), (2, 2), (INF, 100)]) == 2


def test_without_observations_there_is_no_quantile() -> None:
    assert math.isnan(histogram_quantile(0.5, [(1, 0), (INF, 0)]))
    assert math.isnan(histogram_quantile(0.5, []))


def test_without_an_infinite_bucket_there_is_no_quantile() -> None:
    assert math.isnan(histogram_quantile(0.5, [(1, 1), (2, 2)]))


def test_a_first_bucket_below_zero_has_no_lower_end_to_interpolate_from() -> None:
    assert histogram_quantile(0.1, [(-1, 5), (1, 10), (INF, 10)]) == -1


@pytest.mark.parametrize(("quantile", "expected"), [(-0.1, -INF), (1.1, INF)])
def test_a_quantile_outside_0_to_1_is_infinite(quantile: float, expected: float) -> None:
    assert histogram_quantile(quantile, [(1, 1), (INF, 1)]) == expected


def test_buckets_of_several_label_sets_add_up() -> None:
    one, other = [(1.0, 4.0), (2.0, 4.0), (INF, 4.0)], [(1.0, 0.0), (2.0, 4.0), (INF, 4.0)]
    together = [(1.0, 4.0), (2.0, 8.0), (INF, 8.0)]
    for quantile in (0.1, 0.5, 0.9):
        assert histogram_quantile(quantile, one + other) == histogram_quantile(quantile, together)


@given(st.lists(st.floats(0, 4), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_it_lies_in_the_bucket_of_the_true_quantile(values: list[float], quantile: float) -> None:
    bounds = [0.5, 1, 2, 3, 4]
    buckets = [(b, float(sum(v <= b for v in values))) for b in [*bounds, INF]]
    rank = math.ceil(quantile * len(values) - 1e-9)
    true = sorted(values)[max(rank, 1) - 1]
    upper = next(b for b in bounds if true <= b)
    lower = max([0, *(b for b in bounds if b < upper)])
    assert lower <= histogram_quantile(quantile, buckets) <= upper + 1e-9
