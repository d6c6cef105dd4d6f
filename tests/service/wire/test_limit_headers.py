"""Each vendor's clients read the limits from headers as they know them."""

from __future__ import annotations

import calendar
import time

from service.errors import LimitState
from service.tenants.key_limits import KeyLimits
from service.wire.limit_headers import LIMIT_HEADERS, limit_headers

STATE = LimitState(7, 60.4, 900, 0.0205)


def test_openai_has_durations() -> None:
    assert limit_headers("chat_completions", KeyLimits(10, 1000), STATE) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "7",
        "x-ratelimit-reset-requests": "1m1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "21ms",
    }


def test_anthropic_has_times() -> None:
    before = time.time()
    headers = limit_headers(
        "messages", KeyLimits(tokens_per_minute=1000), STATE._replace(tokens_reset=30.0)
    )
    moment = headers.pop("anthropic-ratelimit-tokens-reset")
    seconds = calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
    assert before + 30 <= seconds <= time.time() + 31
    assert headers == {
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "900",
    }


def test_all_names_are_listed() -> None:
    """Pages of other origins may read only what is."""
    limits = KeyLimits(10, 1000)
    found = [limit_headers(route, limits, STATE) for route in ("messages", "responses")]
    assert sorted(LIMIT_HEADERS) == sorted(name for headers in found for name in headers)


def test_other_limits_have_no_header() -> None:
    assert limit_headers("responses", KeyLimits(None, None, 5, 1000), STATE) == {}
