"""The SQL of the archive. Each method of ``ArchiveDatabase`` is one transaction or one query."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Insert, Select, delete, event, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from observability.admin_api import AuditRow
from observability.usage_table import HourlyUsage
from service.store.archive_tables import AUDIT_TABLE, REQUEST_TABLE, USAGE_TABLE
from service.store.database import make_sqlite_engine
from service.store.driver_error import error_kind, error_sentence
from service.store.partitions import Partitions
from service.store.place import StorePlace
from service.store.retention import merge_usage_days
from service.store.schema import database_url
from service.store.sqlite_requests import RowsRefusedError, SqliteRequests

QUERY_SECONDS = 5.0
_FIGURES = tuple(column.name for column in USAGE_TABLE.columns if not column.primary_key)
_REFUSED = ("22", "23")  # SQL's classes of errors about data
_STOPPED = "57014"  # as by statement_timeout
_STEPS_BETWEEN_CHECKS = 100_000  # of SQLite's virtual machine: some milliseconds


class QueryTooLongError(TimeoutError):
    """The database was at work on a query for too long; others may be answered."""


class ArchiveDatabase:
    """Connects on first use. Its methods raise one of ``FAILURES`` when the database does not
    respond, or not in time."""

    FAILURES: tuple[type[Exception], ...] = (
        *(SQLAlchemyError, sqlite3.Error),
        *(OSError, TimeoutError),
    )

    def __init__(self, place: StorePlace) -> None:
        self.backend = place.backend
        self._engine = _make_archive_engine(place)
        self._partitions = Partitions(self._engine) if self.backend == "postgresql" else None
        self._requests = None
        if place.file is not None and place.watched is not None:
            self._requests = SqliteRequests(place.file, place.watched)
        insert = postgresql.insert if self.backend == "postgresql" else sqlite.insert
        self._insert_requests = postgresql.insert(REQUEST_TABLE).on_conflict_do_nothing()
        larger = func.greatest if self.backend == "postgresql" else func.max
        upsert = insert(USAGE_TABLE)
        self._upsert_usage = upsert.on_conflict_do_update(
            index_elements=[column.name for column in USAGE_TABLE.primary_key],
            set_={name: larger(USAGE_TABLE.c[name], upsert.excluded[name]) for name in _FIGURES},
        )

    async def close(self) -> None:
        if self._requests is not None:
            await self._requests.close()
        await self._engine.dispose()

    def explain(self, error: Exception) -> str:
        """Return what the driver says, without the password and without rows."""
        return error_sentence(error, self._engine.url.password)

    # --- writing --------------------------------------------------------------------------------

    async def insert_requests(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Insert those that are not there yet. Return the errors, one for each row that the
        database refuses to take, whenever it is sent."""
        if self._requests is not None:
            return await _insert_accepted(self._requests.insert, rows)
        assert self._partitions is not None
        times = [row["ended"] for row in rows]
        insert = partial(self._insert, self._insert_requests)
        await self._partitions.ensure(times)
        try:
            await insert(rows)
        except DBAPIError as error:
            if not _is_refused(error):
                raise
            # A day may be missing that was there: dropped by another replica, or by a restore.
            self._partitions.forget()
            await self._partitions.ensure(times)
            return await _insert_accepted(insert, rows)
        return []

    async def _insert(self, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(statement, rows)

    async def write_usage(self, boot: int, usage: Sequence[HourlyUsage]) -> None:
        """Store figures that replace smaller ones of the same hour, group, ``boot`` and epoch, so
        that writing them again, or an old write that arrives late, changes nothing."""
        rows = [
            {"hour": one.hour, "boot": boot + one.epoch, **one.group._asdict(), **_numbers(one)}
            for one in usage
        ]
        async with self._engine.begin() as connection:
            await connection.execute(self._upsert_usage, rows)

    async def instance(self) -> str:
        """Return what differs once another database server, or one that was started again, has
        taken the place of the one before. It may have lost rows. Nothing replaces SQLite."""
        if self.backend != "postgresql":
            return ""
        # A proxy keeps its connections to us: only the server itself shows that it is another.
        async with self._engine.connect() as connection:
            return str(await connection.scalar(select(func.pg_postmaster_start_time())))

    async def write_audit(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Insert all. Return the errors of rows that are refused, as ``insert_requests`` does."""
        return await _insert_accepted(partial(self._insert, AUDIT_TABLE.insert()), rows)

    # --- reading --------------------------------------------------------------------------------

    async def rows(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        """Return what a query finds. Raises QueryTooLongError if it takes longer than
        ``QUERY_SECONDS``, and it is then stopped."""
        async with self._engine.connect() as connection:
            until = await self._limit(connection, QUERY_SECONDS)
            try:
                found: Sequence[Row[Any]] = (await connection.execute(statement)).all()
                return found
            except DBAPIError as error:
                if time.monotonic() >= until and _was_stopped(error):
                    raise QueryTooLongError("the query took too long") from error
                raise
            finally:
                await self._limit(connection, None)

    async def _limit(self, connection: AsyncConnection, seconds: float | None) -> float:
        """Limit the next query. Return when it would be stopped."""
        until = time.monotonic() + (seconds or 0.0)
        if self._partitions is None:
            raw = await connection.get_raw_connection()
            raw.info["until"][0] = None if seconds is None else until
        elif seconds is not None:
            milliseconds = round(seconds * 1000)
            await connection.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        return until

    # --- retention ------------------------------------------------------------------------------

    async def delete_requests(self, *, before: float, most: int) -> bool:
        """Delete some of the requests that ended before a time, or that are more than ``most``, the
        oldest first: as many as take a moment, but PostgreSQL's whole days at once. False: there
        are no more of them."""
        if self._partitions is not None:
            return await self._partitions.delete_oldest(before=before, most=most)
        assert self._requests is not None
        return await self._requests.delete(before=before, most=most)

    async def delete_usage(self, *, before_hour: int) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(delete(USAGE_TABLE).where(USAGE_TABLE.c.hour < before_hour))

    async def merge_usage(self, *, before_hour: int) -> None:
        async with self._engine.begin() as connection:
            await merge_usage_days(connection, before_hour=before_hour)

    async def delete_audit(self, *, before: float) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(delete(AUDIT_TABLE).where(AUDIT_TABLE.c.time < before))


def _numbers(usage: HourlyUsage) -> dict[str, float]:
    whole = {name: round(value) for name, value in usage.figures._asdict().items()}
    return {**whole, "seconds": usage.figures.seconds}


async def _insert_accepted(
    insert: Callable[[Sequence[dict[str, Any]]], Awaitable[None]], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Insert all rows but those at fault, which are found by halves; return the error of each."""
    try:
        await insert(rows)
    except (DBAPIError, RowsRefusedError) as error:
        if isinstance(error, DBAPIError) and not _is_refused(error):
            raise
        if len(rows) == 1:
            return [error_kind(error.__cause__ or error)]
        half = len(rows) // 2
        first = await _insert_accepted(insert, rows[:half])
        return first + await _insert_accepted(insert, rows[half:])
    return []


def audit_values(row: AuditRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in AuditRow.__struct_fields__}


def _was_stopped(error: DBAPIError) -> bool:
    """True if the query was, and not the connection lost."""
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
    return getattr(error.orig, "sqlstate", None) == _STOPPED


def _is_refused(error: DBAPIError) -> bool:
    """True if the rows are at fault."""
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return isinstance(error, DataError | IntegrityError) or state.startswith(_REFUSED)


def _make_archive_engine(place: StorePlace) -> AsyncEngine:
    if place.watched is not None:
        engine = make_sqlite_engine(place, place.watched)
        event.listen(engine.sync_engine, "connect", _let_stop)
        return engine
    return create_async_engine(
        database_url(place),
        pool_size=3,
        max_overflow=1,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args={"timeout": 5, "command_timeout": 20},
    )


def _let_stop(connection: Any, record: Any) -> None:
    """Let ``record.info["until"]`` stop a query at a time."""
    until: list[float | None] = [None]
    record.info["until"] = until

    def is_late() -> bool:
        return until[0] is not None and time.monotonic() >= until[0]

    connection.run_async(lambda driver: driver.set_progress_handler(is_late, _STEPS_BETWEEN_CHECKS))
