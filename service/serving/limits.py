"""Limits that apply to both HTTP and gRPC."""

from __future__ import annotations

MOST_CONNECTIONS = 65_536

# A body may take longer than the time limit as long as it arrives at this rate; after so many
# further seconds, only if it has averaged the second rate since its beginning.
_LEAST_BYTES_PER_SECOND = 1024
_UNHURRIED_SECONDS = 240.0
_SUSTAINED_BYTES_PER_SECOND = 64 * 1024


def longest_seconds(size: int, timeout: float) -> float:
    """Return how many seconds ``size`` bytes of a body may take to arrive."""
    return timeout + min(
        size / _LEAST_BYTES_PER_SECOND,
        _UNHURRIED_SECONDS + size / _SUSTAINED_BYTES_PER_SECOND,
    )
