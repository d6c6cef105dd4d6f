"""Lets a browser read the feed for five minutes: the page that was shown to a signed-in person
gives it to the component that draws."""

from __future__ import annotations

import hashlib
import hmac
import secrets

LIFETIME = 300
_ROUNDED = 60  # so that a page drawn again soon has the same token, and draws nothing anew

_secret = secrets.token_bytes(32)  # of this process: a restart asks everyone to load again


def issue(channel: str, now: float) -> str:
    """Return a token for ``channel`` that is valid for 240 to 300 seconds."""
    until = int(now) // _ROUNDED * _ROUNDED + LIFETIME
    return f"{until}.{_signature(channel, until)}"


def seconds_left(token: str, channel: str, now: float) -> float:
    """Return for how long ``token`` opens ``channel``; 0 if it does not."""
    until, _, signature = token.partition(".")
    if not (until.isascii() and until.isdigit()) or len(until) > 12 or int(until) <= now:
        return 0
    issued = hmac.compare_digest(signature.encode(), _signature(channel, int(until)).encode())
    return int(until) - now if issued else 0


def _signature(channel: str, until: int) -> str:
    return hmac.new(_secret, f"{until}.{channel}".encode(), hashlib.sha256).hexdigest()
