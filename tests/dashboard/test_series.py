"""Rates and windows over a few scrapes."""

from __future__ import annotations

import math

import pytest

from dashboard.exposition import Page, Series
from dashboard.series import History

TOKENS = Series("tokens_total", (("model", "a"),))
OTHER = Series("tokens_total", (("model", "b"),))


def history(*pages: tuple[float, dict[Series, float]], seconds: float = 60) -> History:
    scrapes = History(seconds)
    for time, totals in pages:
        scrapes.append(time, Page({}, totals))
    return scrapes


def test_a_rate_is_growth_over_the_time_between_scrapes() -> None:
    scrapes = history((0, {TOKENS: 100}), (2, {TOKENS: 150}), (5, {TOKENS: 200}))
    assert scrapes.rate("tokens_total", 10) == 100 / 5
    assert scrapes.increase("tokens_total", 3) == 50


def test_one_scrape_makes_no_rate() -> None:
    assert math.isnan(history((0, {TOKENS: 100})).rate("tokens_total", 10))
    assert math.isnan(History(60).rate("tokens_total", 10))


def test_a_counter_that_nobody_exposes_has_no_rate() -> None:
    scrapes = history((0, {TOKENS: 1}), (1, {TOKENS: 2}))
    assert math.isnan(scrapes.rate("absent_total", 10))


def test_a_restart_of_the_server_is_no_negative_rate() -> None:
    scrapes = history((0, {TOKENS: 100}), (1, {TOKENS: 110}), (2, {TOKENS: 4}), (3, {TOKENS: 9}))
    assert scrapes.increase("tokens_total", 10) == 10 + 4 + 5
    assert scrapes.increase("tokens_total", 1) == 5


def test_every_restart_is_corrected_for_and_a_series_may_be_missing_in_between() -> None:
    scrapes = history((0, {TOKENS: 100}), (1, {TOKENS: 4}), (2, {OTHER: 1}), (3, {TOKENS: 3}))
    assert scrapes.increase("tokens_total", 10, {"model": "a"}) == 4 + 3


def test_a_window_keeps_its_first_scrape_if_a_timer_was_a_little_early_or_late() -> None:
    scrapes = history((0, {TOKENS: 0}), (5, {TOKENS: 50}), (10.05, {TOKENS: 100}), seconds=10)
    assert scrapes.increase("tokens_total", 10) == 100
    assert scrapes.increase("tokens_total", 5) == 50


def test_series_of_one_label_value_are_one_rate() -> None:
    failed = Series("tokens_total", (("model", "a"), ("outcome", "failed")))
    scrapes = history((0, {TOKENS: 0, failed: 0}), (2, {TOKENS: 10, failed: 4}))
    assert scrapes.rates_by("tokens_total", "model", 10) == {"a": 7}


def test_a_series_that_appears_later_began_at_zero() -> None:
    scrapes = history((0, {TOKENS: 100}), (1, {TOKENS: 100, OTHER: 3}))
    assert scrapes.increase("tokens_total", 10) == 3


def test_series_add_up_unless_labels_tell_them_apart() -> None:
    scrapes = history((0, {TOKENS: 0, OTHER: 0}), (1, {TOKENS: 10, OTHER: 2}))
    assert scrapes.increase("tokens_total", 10) == 12
    assert scrapes.increase("tokens_total", 10, {"model": "b"}) == 2
    assert scrapes.rates_by("tokens_total", "model", 10) == {"a": 10, "b": 2}


def test_old_scrapes_are_forgotten() -> None:
    scrapes = history(*((t, {TOKENS: t * 7.0}) for t in range(1000)), seconds=30)
    assert scrapes.increase("tokens_total", 1e9) == 30 * 7


def test_a_window_over_a_gap_holds_nothing() -> None:
    scrapes = history((0, {TOKENS: 0}), (100, {TOKENS: 500}))
    assert math.isnan(scrapes.rate("tokens_total", 10))


def test_gauges_are_read_from_the_newest_scrape() -> None:
    scrapes = History(60)
    for time, depth in ((0, 4.0), (1, 2.0)):
        scrapes.append(time, Page({Series("depth", (("reason", "slots"),)): depth}, {}))
    assert scrapes.gauge("depth") == 2
    assert scrapes.gauge("depth", {"reason": "slots"}) == 2
    assert math.isnan(scrapes.gauge("depth", {"reason": "budget"}))
    assert scrapes.info("depth") == {"reason": "slots"}


def test_quantiles_look_only_at_what_came_in_the_window() -> None:
    def buckets(fast: float, slow: float) -> dict[Series, float]:
        counts = {"1.0": fast, "2.0": fast + slow, "+Inf": fast + slow}
        return {Series("lag_bucket", (), bound): count for bound, count in counts.items()}

    scrapes = history((0, buckets(1000, 0)), (1, buckets(1000, 0)), (2, buckets(1000, 10)))
    assert scrapes.quantile(0.5, "lag", 1) == pytest.approx(1.5)
    assert scrapes.quantile(0.5, "lag", 2) == pytest.approx(1.5)
    assert math.isnan(history((0, buckets(5, 0)), (1, buckets(5, 0))).quantile(0.5, "lag", 10))
