"""Writes and deletes the rows of ended requests in SQLite, on a separate connection in another
thread and without SQLAlchemy: a server writes one for each request it serves, and SQLAlchemy's part
would cost the worker as much as SQLite's."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy.dialects import sqlite

from service.store.archive_tables import REQUEST_TABLE
from service.store.retention import BatchSize, delete_oldest_rows

BUSY_SECONDS = 10.0  # that it waits for others to finish writing
_INSERT = (
    sqlite.insert(REQUEST_TABLE)
    .on_conflict_do_nothing()
    .compile(dialect=sqlite.dialect(paramstyle="qmark"))
)
_values = itemgetter(*(_INSERT.positiontup or ()))
# Raised for a row that SQLite can never take: a number or text that it cannot hold, a NULL.
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError)


class RowsRefusedError(Exception):
    """SQLite does not accept one of the rows, whenever it is sent; none of them was stored."""


class SqliteRequests:
    """The methods raise sqlite3.Error if the database does not respond."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._batch = BatchSize()
        self._connection: sqlite3.Connection | None = None
        self._opened_file: tuple[int, int] | None = None
        self._lock = threading.Lock()

    async def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Insert those that are not there yet, or none. Raises RowsRefusedError."""
        await asyncio.to_thread(self._insert, rows)

    async def delete(self, *, before: float, most: int) -> bool:
        """Delete a batch of the oldest. False: there are no more to delete."""
        return await asyncio.to_thread(self._delete, before, most)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _insert(self, rows: Sequence[dict[str, Any]]) -> None:
        with self._lock, self._opened() as connection:
            try:
                connection.executemany(_INSERT.string, map(_values, rows))
            except _REFUSALS as error:
                raise RowsRefusedError(type(error).__name__) from error

    def _delete(self, before: float, most: int) -> bool:
        with self._lock:
            rows, begun = self._batch.rows, time.monotonic()
            with self._opened() as connection:
                more = delete_oldest_rows(connection, before=before, most=most, rows=rows)
            if more:  # it was a whole batch
                self._batch.adapt(time.monotonic() - begun)
            return more

    def _opened(self) -> sqlite3.Connection:
        """As a context, a transaction."""
        if self._connection is None:
            connection = sqlite3.connect(self._file, timeout=BUSY_SECONDS, check_same_thread=False)
            try:
                connection.execute("PRAGMA synchronous=NORMAL")  # it reads the file
            except sqlite3.Error:
                connection.close()
                raise
            self._connection, self._opened_file = connection, self._identity()
        elif self._identity() != self._opened_file:
            # SQLite would keep writing to a file that no longer has a name.
            raise sqlite3.OperationalError(
                f"{self._file} was deleted or replaced while the server had it open; restart the "
                "server"
            )
        return self._connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
