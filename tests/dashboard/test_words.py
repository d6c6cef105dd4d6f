from __future__ import annotations

import math

import pytest

from dashboard.words import duration, number, percent, plain_markdown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.00085, "850 µs"),
        (0.0084, "8.4 ms"),
        (0.12, "120 ms"),
        (2.5, "2.5 s"),
        (3.0, "3 s"),
        (75.0, "75 s"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.25, "0.2"), (42, "42"), (99.6, "100"), (1250.4, "1,250"), (math.nan, "–")],
)
def test_numbers_are_short(value: float, words: str) -> None:
    assert number(value) == words


def test_shares_are_percent() -> None:
    assert (percent(0.005), percent(0.5), percent(1), percent(math.nan)) == (
        "0.5 %",
        "50 %",
        "100 %",
        "–",
    )


def test_dollars_in_an_answer_are_money_and_not_a_formula() -> None:
    assert plain_markdown("It costs $5 or $6.") == r"It costs \$5 or \$6."


def test_an_image_in_an_answer_is_not_fetched() -> None:
    assert plain_markdown("![x](http://a/b.png)") == r"!\[x](http://a/b.png)"


def test_code_in_an_answer_stays_as_it_is() -> None:
    code = "```sh\necho $HOME\n```"
    assert plain_markdown(f"$1 {code} and `$x` $2") == rf"\$1 {code} and `$x` \$2"


def test_a_code_block_that_is_still_growing_is_code() -> None:
    assert plain_markdown("```sh\necho $HO") == "```sh\necho $HO"
