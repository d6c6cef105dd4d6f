"""The audit trail: every change that was made over the admin API or tried, as a log line, a row of
the store and in memory."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from observability.admin_api import AuditRow, AuditRows
from observability.audit_log import AuditLog
from service.telemetry.line_budget import LineBudget

MOST_ROWS = 1000
_MOST_CHARS = 256
# Strangers choose the path of a try that is refused: what has no place in a line of a log, and NUL,
# which PostgreSQL takes in no text, become "�".
_UNPRINTABLE = dict.fromkeys((*range(32), 127, *range(0x80, 0xA0)), "\N{REPLACEMENT CHARACTER}")


class AuditStore(Protocol):
    """Keeps audit rows where they survive the worker."""

    def keep_audit(self, row: AuditRow) -> None:
        """Write the row soon. Never blocks, never raises."""

    async def audit_rows(self, limit: int) -> tuple[AuditRow, ...] | None:
        """Return the newest rows, the newest first; None if the store is away."""


class AuditTrail:
    """``store``: None if there is none. ``log``: None for the log lines of this process. Tries that
    are refused before the caller is known are bounded: strangers can make them."""

    def __init__(self, store: AuditStore | None = None, log: AuditLog | None = None) -> None:
        self._store = store
        self._log = log or AuditLog()
        self._rows: deque[AuditRow] = deque(maxlen=MOST_ROWS)
        self._refused = LineBudget()

    def add(
        self,
        actor: str,
        address: str,
        action: str,
        *,
        target: str = "",
        before: str = "",
        after: str = "",
        result: str = "done",
    ) -> AuditRow:
        """Record a change."""
        texts = {
            "actor": actor,
            "address": address,
            "action": action,
            "target": target,
            "before": before,
            "after": after,
            "result": result,
        }
        row = AuditRow(
            time=time.time(),
            **{name: text[:_MOST_CHARS].translate(_UNPRINTABLE) for name, text in texts.items()},
        )
        self._rows.append(row)
        self._log.write(row)
        if self._store is not None:
            self._store.keep_audit(row)
        return row

    def refuse(self, actor: str, address: str, action: str, why: str) -> None:
        """Record a change that was tried and refused."""
        if self._refused.take():
            left_out = self._refused.left_out()
            more = f" ({left_out} earlier ones left out)" if left_out else ""
            self.add(actor, address, action, result=f"refused: {why}{more}")

    def close(self) -> None:
        self._log.close()

    async def rows(self, limit: int) -> AuditRows:
        """Return the newest rows, the newest first: the store's, or those of this worker."""
        if self._store is not None:
            kept = await self._store.audit_rows(limit)
            if kept is not None:
                return AuditRows(kept, "store")
        return AuditRows(tuple(self._rows)[::-1][:limit])
