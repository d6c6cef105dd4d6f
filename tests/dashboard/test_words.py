from __future__ import annotations

import math

import pytest

from dashboard.words import age, count, duration, number, percent, text_only


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 ms"),
        (0.00085, "0.850 ms"),
        (0.0084, "8.40 ms"),
        (0.12, "120 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.5, "2.50 s"),
        (3.0, "3.00 s"),
        (75.0, "75.0 s"),
        (1250.0, "1,250 s"),
    ],
)
def test_durations_are_milliseconds_or_seconds(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((0, "0"), (0.0004, "0.000"), (0.25, "0.250"), (9.3, "9.30"), (9.996, "10.0")),
        *((42, "42.0"), (99.6, "99.6"), (99.96, "100"), (1250.4, "1,250"), (math.nan, "–")),
    ],
)
def test_measured_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words


def test_what_a_model_does_not_take_is_said_in_words() -> None:
    assert text_only(["image", "video"]) == "text only, no image or video"
    assert text_only([]) == ""


def test_what_is_counted_is_a_whole_number() -> None:
    assert (count(7), count(1250), count(math.nan)) == ("7", "1,250", "–")


def test_fewer_digits_where_fewer_are_known() -> None:
    assert (duration(2.82, 2), duration(0.0157, 2), duration(33.0, 2)) == ("2.8 s", "16 ms", "33 s")


def test_a_number_that_changes_from_second_to_second_keeps_its_width() -> None:
    for low, high in ((1.0, 9.99), (10.0, 99.9), (100.0, 999.0)):
        assert len(number(low)) == len(number(high)) == len(number((low + high) / 2))


def test_shares_are_percent() -> None:
    assert (percent(0.005), percent(0.5), percent(1), percent(math.nan)) == (
        "0.500 %",
        "50.0 %",
        "100 %",
        "–",
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (1929, "32 min 9 s"),
        (3600, "1 h 0 min"),
        (86_399, "23 h 59 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_ages(seconds: float, words: str) -> None:
    assert age(seconds) == words
