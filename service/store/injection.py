"""Makes every statement of this process's databases fail for a while."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class Outage:
    """Begins at a statement that ``trigger`` chooses and lasts ``seconds``. ``spares_reads``: only
    statements that write fail."""

    def __init__(
        self,
        said: str,
        trigger: Callable[[], bool],
        seconds: float,
        *,
        spares_reads: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._said = said
        self._trigger = trigger
        self._seconds = seconds
        self._spares_reads = spares_reads
        self._clock = clock
        self._until = 0.0

    def before_statement(self, *arguments: Any) -> None:
        """SQLAlchemy's listener. Raises OperationalError while the outage lasts."""
        statement: str = arguments[2]
        if self._spares_reads and not statement.lstrip().upper().startswith(_WRITES):
            return
        now = self._clock()
        if now >= self._until and self._trigger():
            self._until = now + self._seconds
        if now < self._until:
            raise OperationalError(statement, None, sqlite3.OperationalError(self._said))


def inject(outages: Iterable[Outage]) -> None:
    """Have them happen to every database of this process, whenever it is opened."""
    for outage in outages:
        event.listen(Engine, "before_cursor_execute", outage.before_statement)
