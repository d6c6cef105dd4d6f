"""Each vendor's headers that say what a key has left of its limits."""

from __future__ import annotations

import math
import time

from service.errors import LimitState
from service.tenants.key_limits import KeyLimits

LIMIT_HEADERS = tuple(
    name
    for what in ("requests", "tokens")
    for part in ("limit", "remaining", "reset")
    for name in (f"x-ratelimit-{part}-{what}", f"anthropic-ratelimit-{what}-{part}")
)
"""All names of headers that ``limit_headers`` returns."""

_ANTHROPIC_ROUTES = frozenset({"messages", "count_tokens"})


def limit_headers(route: str, limits: KeyLimits, state: LimitState) -> dict[str, str]:
    """Return the headers of an answer: of the limits per minute that there are."""
    rows = [
        ("requests", limits.requests_per_minute, state.requests_left, state.requests_reset),
        ("tokens", limits.tokens_per_minute, state.tokens_left, state.tokens_reset),
    ]
    is_anthropic = route in _ANTHROPIC_ROUTES
    found: dict[str, str] = {}
    for what, limit, left, reset in rows:
        if limit is None:
            continue
        if is_anthropic:
            name = f"anthropic-ratelimit-{what}-"
            found[f"{name}limit"] = str(limit)
            found[f"{name}remaining"] = str(left)
            found[f"{name}reset"] = _moment(reset)
        else:
            found[f"x-ratelimit-limit-{what}"] = str(limit)
            found[f"x-ratelimit-remaining-{what}"] = str(left)
            found[f"x-ratelimit-reset-{what}"] = _duration(reset)
    return found


def _moment(seconds: float) -> str:
    """Return the time in so many seconds, as in RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(time.time() + seconds)))


def _duration(seconds: float) -> str:
    """Return ``1m0s``, ``6s`` or ``20ms``, as OpenAI does."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
