"""Whether requests, usage and audit can be written to the database now, and what in the end was
not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from observability.logging import get_logger

ARCHIVE_AWAY = "The database of requests and usage is unavailable; retry."
_NOT_REACHED = "the database could not be reached"

_log = get_logger()


class Unstored(NamedTuple):
    """How much waits for the database. ``usage_of_keys``: how many keys used something that it does
    not know of."""

    requests: int
    usage_of_keys: int
    audit_entries: int


class ArchiveCondition:
    """``on_away``: called with whether storing fails from then on."""

    def __init__(self, on_away: Callable[[bool], None]) -> None:
        self.is_away = False
        self._on_away = on_away
        self._reason = ""  # what the database said to the last attempt, until one succeeds

    @property
    def sentence(self) -> str:
        """Why a reader gets an error."""
        return incomplete(self._reason) if self._reason else ARCHIVE_AWAY

    def change(self, *, away: bool) -> None:
        self.is_away = away
        self._on_away(away)

    def fail(self, reason: str) -> None:
        """Nothing can be written. Logged once for as long as it lasts."""
        self.change(away=True)
        if not self._reason:
            _log.error("requests and usage cannot be stored", error=reason)
        self._reason = reason

    def recover(self) -> None:
        self.change(away=False)
        self._reason = ""

    def end(self, unstored: Unstored, *, cut_after: float | None) -> None:
        """Nothing more will be written. ``cut_after``: the last attempt took longer than these
        seconds."""
        if not any(unstored):
            return
        reason = self._reason or _NOT_REACHED
        if cut_after is not None:
            reason = f"the database did not accept them within {cut_after:g} s"
        _log.error(
            "requests, usage or audit entries were not stored; if the server ends, they are lost",
            **unstored._asdict(),
            error=reason,
        )


def incomplete(reason: str) -> str:
    """Return why a reader does not get what the database already has."""
    return (
        "Requests or usage in memory cannot be written to the database, so the answer would be "
        f"incomplete: {reason}. Restore the database; Quire tries again every two seconds."
    )
