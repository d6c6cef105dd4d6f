"""Writes the audit entries that wait for the database."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from observability.admin_api import AuditRow
from observability.logging import get_logger
from service.store.refused_rows import RefusedRows

if TYPE_CHECKING:
    from service.store.archive_database import ArchiveDatabase

_MOST_ROWS = 1000

_log = get_logger()


class AuditWriter:
    """Keeps the rows until they are stored or refused."""

    def __init__(self) -> None:
        self._rows: deque[AuditRow] = deque()
        self._writing = asyncio.Lock()
        self._refused = RefusedRows("the database refused audit rows")

    @property
    def count(self) -> int:
        return len(self._rows)

    def keep(self, row: AuditRow) -> None:
        if len(self._rows) >= _MOST_ROWS:
            _log.warning("an audit row was not stored", action=row.action, actor=row.actor)
            return
        self._rows.append(row)

    async def write(self, database: ArchiveDatabase) -> None:
        """Raises what the database does."""
        from service.store.archive_database import audit_values

        async with self._writing:
            rows = list(self._rows)
            if rows:
                self._refused.note(await database.write_audit([audit_values(row) for row in rows]))
                for _ in rows:  # those that were refused, too: they must not stop later ones
                    self._rows.popleft()
