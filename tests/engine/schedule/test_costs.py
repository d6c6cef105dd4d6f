"""Step times by prompt tokens: they only rise, and what is newer is believed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.costs import FORGOTTEN_AFTER, CostCurve


def curve_of(*observed: tuple[int, float]) -> CostCurve:
    curve = CostCurve()
    for tokens, seconds in observed:
        curve.observe(tokens, seconds)
    return curve


def test_between_measured_sizes_and_after_them_the_time_is_on_a_line() -> None:
    curve = curve_of((100, 1.0), (300, 2.0))
    assert [curve.seconds(n) for n in (100, 200, 300, 500)] == pytest.approx([1.0, 1.5, 2.0, 3.0])


def test_below_the_smallest_and_with_a_single_size_it_is_proportional() -> None:
    assert curve_of((100, 1.0), (300, 2.0)).seconds(50) == pytest.approx(0.5)
    assert curve_of((100, 1.0)).seconds(250) == pytest.approx(2.5)
    assert curve_of().seconds(250) == 0


def test_a_size_has_the_median_of_its_newest_times() -> None:
    curve = curve_of((100, 1.0), (100, 1.1), (100, 9.0))
    assert curve.seconds(100) == 1.1
    curve.observe(100, 9.0)
    assert curve.seconds(100) == 9.0


def test_times_from_long_ago_count_no_more_once_there_is_a_new_one() -> None:
    curve = curve_of((100, 1.0), (100, 1.0), *[(2000, 5.0)] * (FORGOTTEN_AFTER + 1), (100, 3.0))
    assert curve.seconds(100) == 3.0


def test_a_new_time_overrules_older_ones_that_contradict_it() -> None:
    curve = curve_of((50, 2.0), (400, 4.0), (100, 1.0))
    assert curve.seconds(50) == 1.0
    curve.observe(200, 6.0)
    assert curve.seconds(400) == 6.0


def test_what_was_observed_before_a_change_is_forgotten() -> None:
    curve = curve_of((50, 1.0), (100, 2.0), (100, 2.0), (100, 8.0), (20, 1.5))
    curve.forget_before(4)
    assert [(point.tokens, point.seconds) for point in curve.points] == [(20, 1.5), (100, 8.0)]
    curve.observe(50, 4.0)
    assert curve.seconds(50) == 4.0


@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(1e-6, 10)), max_size=60))
def test_more_tokens_never_take_less(observed: list[tuple[int, float]]) -> None:
    curve = curve_of(*observed)
    points = curve.points
    assert all(a.tokens < b.tokens and a.seconds <= b.seconds for a, b in pairwise(points))
