"""Deletes the oldest requests, as many in a transaction as take a moment, so that writers need not
wait, and merges old usage of hours to days."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.archive_tables import USAGE_TABLE

FEWEST_AT_ONCE, MOST_AT_ONCE = 100, 5000  # more than are written at once
_FIRST_AT_ONCE = 200
_BATCH_SECONDS = 0.025
_MOST_GROWTH, _MOST_SHRINKING = 1.5, 0.5


class BatchSize:
    """How many rows the next transaction deletes: as many as take ``_BATCH_SECONDS``, by what the
    last ones took."""

    def __init__(self) -> None:
        self.rows = min(_FIRST_AT_ONCE, MOST_AT_ONCE)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around a transaction that deletes ``rows``."""
        begun = time.monotonic()
        yield
        self.adapt(time.monotonic() - begun)

    def adapt(self, seconds: float) -> None:
        factor = _BATCH_SECONDS / max(seconds, 1e-6)
        rows = round(self.rows * min(_MOST_GROWTH, max(_MOST_SHRINKING, factor)))
        self.rows = min(MOST_AT_ONCE, max(FEWEST_AT_ONCE, rows))


# By age: as the rows ended. Beyond the limit: as they were written, which is nearly the same, and
# whose number is known without counting.
_EXPIRED = """
    DELETE FROM quire_requests WHERE rowid IN
    (SELECT rowid FROM quire_requests WHERE ended < ? ORDER BY ended LIMIT ?)
"""
_FIRST = """
    DELETE FROM quire_requests WHERE rowid IN
    (SELECT rowid FROM quire_requests ORDER BY rowid LIMIT ?)
"""
# Separately, as SQLite finds only one of them in an index without reading all.
_NUMBER = """
    SELECT coalesce((SELECT max(rowid) FROM quire_requests)
                    - (SELECT min(rowid) FROM quire_requests) + 1, 0)
"""


def delete_oldest_rows(
    connection: sqlite3.Connection, *, before: float, most: int, rows: int
) -> bool:
    """Delete at most ``rows``. False: there are no more to delete."""
    expired = connection.execute(_EXPIRED, (before, rows)).rowcount
    if expired:
        return expired == rows
    surplus = connection.execute(_NUMBER).fetchone()[0] - most
    if surplus <= 0:
        return False
    connection.execute(_FIRST, (min(surplus, rows),))
    return bool(surplus > rows)


_KEY = [column.name for column in USAGE_TABLE.primary_key]
_FIGURES = [column.name for column in USAGE_TABLE.columns if not column.primary_key]
_MERGED_BOOT = 0
_LOCK = 0x7175697267  # of replicas that merge at the same time


async def merge_usage_days(connection: AsyncConnection, *, before_hour: int) -> None:
    """Merge the hours before ``before_hour``, the first of a day, to days, in which alone they can
    be queried. ``connection`` is in a transaction."""
    columns = USAGE_TABLE.c
    is_postgresql = connection.dialect.name == "postgresql"
    if is_postgresql:
        await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    old = (columns.hour < before_hour) & (columns.boot != _MERGED_BOOT)
    day = [columns.hour - columns.hour % 24, columns.key, columns.model, columns.route]
    sums = [func.sum(columns[name]) for name in _FIGURES]
    days = select(*day, literal(_MERGED_BOOT), *sums).where(old).group_by(*day)
    insert = postgresql.insert if is_postgresql else sqlite.insert
    merged = insert(USAGE_TABLE).from_select([*_KEY, *_FIGURES], days)
    added = {name: columns[name] + merged.excluded[name] for name in _FIGURES}
    await connection.execute(merged.on_conflict_do_update(index_elements=_KEY, set_=added))
    await connection.execute(delete(USAGE_TABLE).where(old))
