"""PostgreSQL's days of ``quire_requests``: each is a separate table, created before it is needed
and dropped whole, so that nothing has to be vacuumed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from observability.logging import get_logger
from service.store.retention import BatchSize

_DAY_SECONDS = 86_400
_LOCK = 0x7175697266  # of replicas that create or drop days at the same time
_NAME = re.compile(r"quire_requests_d(\d+)")
# Estimates, because counting would read everything. PostgreSQL's statistics count the rows that are
# written; a crash or a failover resets them, and they are wrong until the table is analyzed again.
_DAYS = text(
    "SELECT relname, is_measured, "
    "CASE WHEN is_measured THEN pg_stat_get_live_tuples(oid) ELSE greatest(reltuples, 0) END "
    "FROM (SELECT child.oid, relname, reltuples, coalesce("
    "pg_stat_get_last_analyze_time(child.oid), pg_stat_get_last_autoanalyze_time(child.oid), "
    "pg_stat_get_last_vacuum_time(child.oid), pg_stat_get_last_autovacuum_time(child.oid)"
    ") IS NOT NULL AS is_measured "
    "FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid "
    "WHERE inhparent = 'quire_requests'::regclass) AS days"
)
# ANALYZE reads at most 300 times this many pages: enough to estimate how many rows there are.
_MEASURE_BY_FEW = text("SET LOCAL default_statistics_target = 10")
_IS_ATTACHED = text(
    "SELECT count(*) FROM pg_inherits "
    "WHERE inhparent = 'quire_requests'::regclass AND inhrelid = to_regclass(:name)"
)
_TABLESPACE = text(
    "SELECT quote_ident(spcname) FROM pg_class JOIN pg_tablespace space "
    "ON space.oid = reltablespace WHERE pg_class.oid = 'quire_requests'::regclass"
)
# A table that is there has rows of another day, or other columns.
_NOT_ATTACHABLE = ("23514", "42804")
_COUNT = text("SELECT count(*) FROM quire_requests")
_DELETE = text(
    "DELETE FROM quire_requests WHERE (ended, request_id) IN "
    "(SELECT ended, request_id FROM quire_requests ORDER BY ended LIMIT :most)"
)

_log = get_logger()


class _Day(NamedTuple):
    number: int  # since the epoch
    rows: int
    is_measured: bool  # PostgreSQL has statistics of it

    def is_over(self, at: float) -> bool:
        return (self.number + 1) * _DAY_SECONDS <= at


class Partitions:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._there: set[int] = set()
        self._not_attached: set[int] = set()  # days that cannot be
        self._batch = BatchSize()

    async def ensure(self, times: Iterable[float]) -> None:
        """Create the days of these times, if they are missing. Days between them are not: when the
        clock has been set, that would be more tables than one transaction can create. A day's table
        that is there but detached is attached again; if that cannot be, only requests of that day
        are refused."""
        days = {int(time // _DAY_SECONDS) for time in times}
        missing = sorted(days - self._there)
        if not missing:
            return
        async with self._engine.begin() as connection:
            await _take_lock(connection)
            for day in missing:
                try:
                    async with connection.begin_nested():
                        await _make_day(connection, day)
                except DBAPIError as error:
                    if getattr(error.orig, "sqlstate", None) not in _NOT_ATTACHABLE:
                        raise
                    self._note_not_attached(day, error)
        self._there.update(missing)

    def _note_not_attached(self, day: int, error: DBAPIError) -> None:
        if day not in self._not_attached:
            self._not_attached.add(day)
            _log.error(
                f"the table quire_requests_d{day} cannot be attached to quire_requests, and "
                "requests of that day are not stored; rename or drop it",
                error=str(error.orig),
            )

    def forget(self) -> None:
        """Forget which days exist, so that ``ensure`` looks in the database again."""
        self._there.clear()

    async def delete_oldest(self, *, before: float, most: int) -> bool:
        """Drop the days that ended before a time, and those without which there are still ``most``
        rows; if one day alone has more, delete some of its oldest. False: there are no more."""
        await self._measure(before)
        async with self._engine.begin() as connection:
            await _take_lock(connection)
            days = await _days(connection)
            self._there &= {day.number for day in days}  # another replica may have dropped some
            rows = sum(day.rows for day in days)
            while days and (days[0].is_over(before) or rows - days[0].rows >= most):
                oldest = days.pop(0)
                rows -= oldest.rows
                self._there.discard(oldest.number)
                await connection.execute(text(f"DROP TABLE quire_requests_d{oldest.number}"))
            # Those of the future are from a replica whose clock was ahead.
            today = int(time.time() // _DAY_SECONDS)
            if rows <= most or sum(day.number <= today for day in days) > 1:
                return False
            surplus = int(await connection.scalar(_COUNT) or 0) - most
            if surplus <= 0:
                return False
            rows = self._batch.rows
            if surplus < rows:
                await connection.execute(_DELETE, {"most": surplus})
                return False
            with self._batch.timed():
                await connection.execute(_DELETE, {"most": rows})
            return surplus > rows

    async def _measure(self, before: float) -> None:
        """Let PostgreSQL estimate the rows of days that it has no statistics of: new ones, and all
        after a crash or a failover. A day that is locked is left for the next time."""
        async with self._engine.begin() as connection:
            unknown = [
                day.number
                for day in await _days(connection)
                if not (day.is_measured or day.is_over(before))
            ]
            if unknown:
                await connection.execute(_MEASURE_BY_FEW)
            for day in unknown:
                # One column, so that a small sample does not spoil the planner's statistics of
                # the others.
                await connection.execute(
                    text(f"ANALYZE (SKIP_LOCKED) quire_requests_d{day} (request_id)")
                )


async def _days(connection: AsyncConnection) -> list[_Day]:
    """Return the days that there are, the oldest first."""
    found = (await connection.execute(_DAYS)).all()
    return sorted(
        _Day(int(match[1]), int(rows), is_measured)
        for name, is_measured, rows in found
        if (match := _NAME.fullmatch(name))
    )


async def _make_day(connection: AsyncConnection, day: int) -> None:
    """Create the table, then attach it: ``CREATE TABLE … PARTITION OF`` would have to wait for each
    transaction that has read requests, such as a backup; these two statements wait only for
    VACUUM and ANALYZE of the whole table."""
    name = f"quire_requests_d{day}"
    if await connection.scalar(_IS_ATTACHED, {"name": name}):
        return
    begin, end = day * _DAY_SECONDS, (day + 1) * _DAY_SECONDS
    tablespace = await connection.scalar(_TABLESPACE)  # which LIKE leaves out
    place = f" TABLESPACE {tablespace}" if tablespace else ""
    await connection.execute(
        text(f"CREATE TABLE IF NOT EXISTS {name} (LIKE quire_requests INCLUDING ALL){place}")
    )
    await connection.execute(
        text(
            f"ALTER TABLE quire_requests ATTACH PARTITION {name} "
            f"FOR VALUES FROM ({begin}) TO ({end})"
        )
    )


async def _take_lock(connection: AsyncConnection) -> None:
    """Wait for other replicas, but not for long: a day cannot be dropped while it is being read."""
    await connection.execute(text("SET LOCAL lock_timeout = 2000"))
    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
