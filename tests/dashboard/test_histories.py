"""Figures of replicas that share an address are never added up."""

from __future__ import annotations

import math

from dashboard.exposition import Page, Series
from dashboard.histories import Histories
from observability import catalogue

TOKENS = catalogue.GENERATED_TOKENS.name


def page(server: str, tokens: float) -> Page:
    info = Series(catalogue.BUILD_INFO.name, (("python", "3"), ("server", server)))
    return Page({info: 1.0}, {Series(TOKENS, (("model", "m"),)): tokens})


def test_replicas_behind_one_address_are_told_apart() -> None:
    """Three replicas of 100 tokens/s each, one after the other: the rate shown is that of one, not
    of the differences between their totals."""
    histories = Histories(30.0)
    totals = [1_000_000.0, 5_000.0, 400_000.0]
    rates = []
    for second in range(30):
        replica = second % 3
        history = histories.append(second, page(f"pod-{replica}:8000", totals[replica]))
        rates.append(history.rate(TOKENS, 10))
        totals = [total + 100 for total in totals]
    assert all(math.isnan(rate) for rate in rates[:3])
    assert rates[3:] == [100.0] * 27
    assert histories.alternating() == ["pod-0:8000", "pod-1:8000", "pod-2:8000"]


def test_a_server_that_answered_for_long_before_another_did_alternates_with_it() -> None:
    histories = Histories(30.0)
    for second in range(100):
        histories.append(second, page("a:8000", 500))
    histories.append(100, page("b:8000", 500))
    histories.append(101, page("a:8000", 500))
    assert histories.alternating() == ["a:8000", "b:8000"]


def test_a_server_that_takes_the_place_of_another_is_no_restart_of_it() -> None:
    histories = Histories(30.0)
    histories.append(1, page("old:8000", 500))
    histories.append(2, page("old:8000", 600))
    history = histories.append(3, page("new:8000", 7_000_000))
    assert math.isnan(history.rate(TOKENS, 10))
    assert histories.append(4, page("new:8000", 7_000_050)).rate(TOKENS, 10) == 50
    assert histories.alternating() == []


def test_a_restart_of_the_same_server_is_corrected_for() -> None:
    histories = Histories(30.0)
    histories.append(1, page("a:8000", 500))
    assert histories.append(2, page("a:8000", 40)).increase(TOKENS, 10) == 40


def test_servers_without_the_label_are_taken_for_one() -> None:
    histories = Histories(30.0)
    for second in range(5):
        history = histories.append(
            second, Page({}, {Series(TOKENS, (("model", "m"),)): second * 7.0})
        )
    assert history.rate(TOKENS, 10) == 7
    assert histories.alternating() == []


def test_a_server_that_no_longer_answers_is_forgotten() -> None:
    histories = Histories(30.0)
    for second in range(3):
        histories.append(second, page("ab"[second % 2], second))
    assert histories.alternating() == ["a", "b"]
    for second in range(3, 40):
        history = histories.append(second, page("a", second))
    assert histories.alternating() == []
    assert history.rate(TOKENS, 10) == 1
    history = histories.append(40, page("b", 1000))
    assert math.isnan(history.rate(TOKENS, 10)), "its old scrapes are gone"
