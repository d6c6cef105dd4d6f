"""How much a tenant may use."""

from __future__ import annotations

from typing import NamedTuple


class KeyLimits(NamedTuple):
    """None: as much as there is. ``tokens_per_day``: of UTC."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    tokens_per_day: int | None = None

    def __bool__(self) -> bool:
        """True if there is a limit."""
        return self != NO_LIMITS


NO_LIMITS = KeyLimits()
_UNITS = ("requests/min", "tokens/min", "at once", "tokens/day")


def limits_text(limits: KeyLimits) -> str:
    """Return the limits that there are in words; empty if there are none."""
    return ", ".join(
        f"{limit:,} {unit}" for limit, unit in zip(limits, _UNITS, strict=True) if limit is not None
    )
