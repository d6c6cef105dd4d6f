"""Quantiles of a window are those of its requests, computed naively."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.admin_api import KeptRequest, Quantiles
from service.records import recent
from service.records.recent import (
    MOST_TOLD,
    RecentlyEnded,
    joined_window,
    quantiles,
    weighted_quantiles,
)
from service.records.row import Row, row_of
from tests.service.records.keeping import row

_seconds = st.integers(0, 50).map(lambda tenths: tenths / 10)


@given(
    st.lists(
        st.tuples(_seconds, st.none() | _seconds, _seconds, st.sampled_from(["stop", "length"]))
    ),
    _seconds,
)
def test_a_window_has_exact_figures_of_what_ended_in_it(
    requests: list[tuple[float, float | None, float, str]], later: float
) -> None:
    window, now, ended = RecentlyEnded(10.0), 1000.0, []
    for gap, ttft, total, outcome in requests:
        now += gap
        window.add(row(1, ended=now, ttft=ttft, itl_mean=ttft, total=total, outcome=outcome))
        ended.append((now, ttft, total, outcome))
    now += later
    inside = [one for one in ended if one[0] > now - 10.0]
    found = window.window(now, {"ttft": 1.0})
    assert found.total == naive([total for _, _, total, _ in inside])
    ttfts = [ttft for _, ttft, _, _ in inside if ttft is not None]
    assert found.ttft == found.itl == naive(ttfts)
    met = sum(ttft <= 1.0 for ttft in ttfts)
    assert found.attainment == {"ttft": met / len(ttfts) if ttfts else None}
    assert found.ended == {
        name: count / 10.0
        for name in ("stop", "length")
        if (count := sum(one[3] == name for one in inside))
    }


def naive(values: list[float]) -> Quantiles:
    if not values:
        return Quantiles()
    ordered = sorted(values)
    ranks = [math.ceil(len(ordered) * share / 100) for share in (50, 95, 99)]
    return Quantiles(*(ordered[rank - 1] for rank in ranks), len(ordered))


def test_a_quantile_is_a_value_that_was_observed() -> None:
    assert quantiles([1.0, 2.0, 3.0, 4.0]) == Quantiles(2.0, 4.0, 4.0, 4)


def test_a_window_holds_a_bounded_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_ENDED", 3)
    window = RecentlyEnded(1000.0)
    for number in range(5):
        window.add(row(number, ended=100.0 + number, total=float(number)))
    assert window.window(105.0, {}).total == Quantiles(3.0, 4.0, 4.0, 3)


def _row(number: int, value: float) -> Row:
    return row_of(
        KeptRequest(
            request_id=f"req_{number}",
            received=1000.0,
            ended=1000.0,
            route="completions",
            outcome=("stop", "length")[number % 2],
            ttft=value,
            total=2 * value,
        )
    )


@pytest.mark.parametrize("count", [0, 1, 7, 3 * MOST_TOLD])
def test_windows_of_several_workers_are_joined_to_that_of_one(count: int) -> None:
    """Exactly, up to a number of requests."""
    chance = random.Random(count)
    one, several = RecentlyEnded(10.0), [RecentlyEnded(10.0) for _ in range(3)]
    for number in range(count):
        row = _row(number, chance.random())
        one.add(row)
        several[number % 3].add(row)
    objectives = {"ttft": 0.25, "itl": 0.1}
    parts = [window.values(1000.0) for window in several]
    assert joined_window(10.0, parts, objectives) == one.window(1000.0, objectives)


@pytest.mark.parametrize("times", [[1], [3, 1], [90, 8, 1, 1], [1, 1, 98], [2] * 50])
def test_weighted_quantiles_are_those_of_each_value_repeated(times: list[int]) -> None:
    weighted = [(float(value), count) for value, count in enumerate(times)]
    repeated = [value for value, count in weighted for _ in range(count)]
    assert weighted_quantiles(weighted) == quantiles(repeated)


def test_beyond_that_number_quantiles_are_close() -> None:
    chance = random.Random(1)
    one, several = RecentlyEnded(10.0), [RecentlyEnded(10.0) for _ in range(2)]
    for number in range(9000):
        row = _row(number, chance.random())
        one.add(row)
        several[number % 3 == 0].add(row)
    found = joined_window(10.0, [window.values(1000.0) for window in several], {"ttft": 0.25})
    exact = one.window(1000.0, {"ttft": 0.25})
    assert found.ttft.count == 9000
    assert found.ended == exact.ended
    for name in ("p50", "p95", "p99"):
        assert getattr(found.ttft, name) == pytest.approx(getattr(exact.ttft, name), abs=0.003)
    assert found.attainment["ttft"] == pytest.approx(exact.attainment["ttft"], abs=0.002)
