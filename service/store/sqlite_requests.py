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
from service.store.watched_file import WatchedFile

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
    """The methods raise sqlite3.Error if the database does not respond, or FileReplacedError."""

    def __init__(self, file: Path, watched: WatchedFile) -> None:
        self._file = file
        self._watched = watched
        self._batch = BatchSize()
        self._connection: sqlite3.Connection | None = None
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
        self._watched.check()
        if self._connection is None:
            connection = sqlite3.connect(self._file, timeout=BUSY_SECONDS, check_same_thread=False)
            try:
                connection.execute("PRAGMA synchronous=NORMAL")  # it reads the file
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
