"""When requests, usage and audit rows are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from observability.logging import get_logger

if TYPE_CHECKING:
    from service.store.archive_database import ArchiveDatabase

_SECONDS = 15.0
_DAYS_BY_HOUR = 32  # of usage; older days are one row
_HOUR_SECONDS = 3600
_DAY_SECONDS = 86_400

_log = get_logger()


@dataclass(slots=True)
class ArchiveLimits:
    """May be changed at any time. Requests beyond ``requests``, or older than ``request_days``, are
    deleted, usage and audit rows after ``usage_days``."""

    requests: int = 1_000_000
    request_days: float = 7.0
    usage_days: float = 400.0


class Sweep:
    """Deletes what is older or more than ``limits`` every ``_SECONDS``. Requests go batch by batch,
    so that deleting takes only a small part of the time. ``leads``: this worker is the one of its
    server that deletes.

    What cannot be deleted, such as a day that a backup reads, is tried again after ``_SECONDS``.
    Nothing else waits for it, and it does not count as a failure of the store."""

    def __init__(self, limits: ArchiveLimits, leads: Callable[[], bool] = lambda: True) -> None:
        self._limits = limits
        self._leads = leads
        self._at = 0.0
        self._merged_day = 0
        self._has_more = False
        self._failed = False  # since the last sweep began
        self._warned = False

    @property
    def has_more(self) -> bool:
        """True if there are more requests to delete."""
        return self._has_more

    async def delete_requests(self, database: ArchiveDatabase) -> None:
        """Delete a batch of requests."""
        try:
            self._has_more = await database.delete_requests(
                before=time.time() - self._limits.request_days * _DAY_SECONDS,
                most=self._limits.requests,
            )
        except database.FAILURES as error:
            self._has_more = False
            self._note(database.explain(error))

    async def run(self, database: ArchiveDatabase) -> None:
        """Do what is due: at most one batch of requests."""
        if not self._leads():
            return
        is_due = time.monotonic() >= self._at
        if is_due:
            self._failed = False
        if is_due or self._has_more:
            await self.delete_requests(database)
        if not is_due:
            return
        try:
            await self._delete_others(database)
        except database.FAILURES as error:
            self._note(database.explain(error))
        self._warned = self._failed
        self._at = time.monotonic() + _SECONDS

    async def _delete_others(self, database: ArchiveDatabase) -> None:
        now = time.time()
        usage_before = now - self._limits.usage_days * _DAY_SECONDS
        await database.delete_usage(before_hour=int(usage_before // _HOUR_SECONDS))
        await database.delete_audit(before=usage_before)
        day = int(now // _DAY_SECONDS) - _DAYS_BY_HOUR
        if day != self._merged_day:
            await database.merge_usage(before_hour=day * 24)
            self._merged_day = day

    def _note(self, reason: str) -> None:
        """Warn once for as long as it lasts."""
        if not self._warned:
            _log.warning(
                f"old rows cannot be deleted now; trying again every {_SECONDS:g} s", error=reason
            )
        self._failed = self._warned = True
