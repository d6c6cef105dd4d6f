"""Writes the usage of a worker's ledger to the database."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from observability.logging import get_logger
from observability.usage_table import HourlyUsage, UsageTable

if TYPE_CHECKING:
    from service.store.archive_database import ArchiveDatabase

_SECONDS = 10.0

_log = get_logger()


class UsageWriter:
    """Also releases rows of the table that are stored."""

    def __init__(self, table: UsageTable) -> None:
        self._table = table
        self._stored: dict[int, HourlyUsage] = {}  # by row, as last written
        self._instance = ""  # of the database that has them
        self._writing = asyncio.Lock()
        self._next = 0.0
        self._said_overflow = False

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    @property
    def is_urgent(self) -> bool:
        """True if the table needs room."""
        return self._table.is_crowded

    @property
    def keys_pending(self) -> int:
        """How many keys used something that is not stored."""
        return len({one.group.key for one in self._changed(self._table.rows())})

    def _changed(self, rows: list[HourlyUsage]) -> list[HourlyUsage]:
        return [one for one in rows if self._stored.get(one.row) != one]

    async def write(self, database: ArchiveDatabase) -> None:
        """Write what has changed, or after a failover, which may have lost rows, all. Raises what
        the database does."""
        async with self._writing:
            instance = await database.instance()
            if instance != self._instance:
                self._instance, self._stored = instance, {}
            now = self._table.rows()
            changed = self._changed(now)
            if changed:
                await database.write_usage(self._table.boot_id, changed)
            self._stored = {one.row: one for one in now}
            # Of this hour, those that have not changed for long first.
            lately = {one.row for one in changed}
            self._table.release(sorted(now, key=lambda one: one.row in lately))
            self._next = time.monotonic() + _SECONDS
            if self._table.overflowed and not self._said_overflow:
                _log.warning("some usage cannot be counted by key; it is counted under 'other'")
                self._said_overflow = True
