"""Bounds that hold for HTTP and gRPC alike."""

from __future__ import annotations

MOST_CONNECTIONS = 65_536

# A body that goes on arriving may take longer than the time limit, at this pace or faster; after
# so many seconds more, only if it has come at the other pace since its beginning.
_LEAST_BYTES_PER_SECOND = 1024
_UNHURRIED_SECONDS = 240.0
_SUSTAINED_BYTES_PER_SECOND = 64 * 1024


def longest_seconds(size: int, timeout: float) -> float:
    """How long ``size`` bytes of a body may take to arrive."""
    return timeout + min(
        size / _LEAST_BYTES_PER_SECOND,
        _UNHURRIED_SECONDS + size / _SUSTAINED_BYTES_PER_SECOND,
    )
