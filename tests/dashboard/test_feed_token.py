from __future__ import annotations

import pytest

from dashboard.feed_token import LIFETIME, issue, seconds_left


def test_a_token_opens_its_channel_for_five_minutes_at_most() -> None:
    token = issue("0-1", 1000.0)
    assert seconds_left(token, "0-1", 1000.0) == 960 + LIFETIME - 1000
    assert seconds_left(token, "0-1", 1000.0 + LIFETIME - 61)
    assert not seconds_left(token, "0-1", 1000.0 + LIFETIME)


def test_a_page_drawn_again_soon_has_the_same_token() -> None:
    assert issue("0", 960.0) == issue("0", 1019.0) != issue("0", 1020.0)


@pytest.mark.parametrize(
    "token", ["", ".", "9999999999.", "9999999999." + "0" * 64, "²." + "0" * 64, "1é.x"]
)
def test_a_made_up_token_opens_nothing(token: str) -> None:
    assert not seconds_left(token, "0", 1000.0)


def test_a_token_opens_no_other_channel_and_not_for_longer() -> None:
    token = issue("0", 1000.0)
    until, _, signature = token.partition(".")
    assert not seconds_left(token, "1", 1000.0)
    assert not seconds_left(token, "0.kv", 1000.0)
    assert not seconds_left(f"{int(until) + 60}.{signature}", "0", 1000.0)
