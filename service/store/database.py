"""The database of stored responses: the store's operations in SQL.

This module's imports take longer to load than everything else in a worker, so
``service.store.store`` imports it in a thread while the worker already answers.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    cast,
    delete,
    event,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError, StatementError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from service.store.place import StorePlace
from service.store.record import RUNNING, StoredResponse
from service.store.schema import bring_up_to_date, database_url
from service.store.tables import Base, ResponseRow, from_row, to_row
from service.store.watched_file import WatchedFile

_TABLE = Base.metadata.tables[ResponseRow.__tablename__]
_MOST_VALUES = 10_000
# A row without an owner or content, which never was valid, is the trace of a deleted response: it
# keeps replicas that still work on it from storing it again, and is swept when its lease ends.
_TRACE_SECONDS = 600
_IS_NO_TRACE = ResponseRow.expires_at > 0
_EMPTY = zlib.compress(b"")


class Missing(NamedTuple):
    """``deleted``: by a client, through any replica. ``lost``: by the database."""

    deleted: set[str]
    lost: set[str]


class Database:
    """Connects on first use. Each method is one transaction and raises one of ``FAILURES`` when the
    database does not respond."""

    FAILURES: tuple[type[Exception], ...] = (SQLAlchemyError, OSError, TimeoutError)

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._engine = make_engine(place)
        # Seconds since the epoch by the database's own clock.
        text = "strftime('%s', 'now')" if place.backend == "sqlite" else "extract(epoch from now())"
        self._now: ColumnElement[int] = cast(literal_column(text), BigInteger)
        insert = (sqlite if place.backend == "sqlite" else postgresql).insert(_TABLE)
        self._upsert = insert.on_conflict_do_update(
            index_elements=[_TABLE.c.id],
            set_={column.name: insert.excluded[column.name] for column in _TABLE.c},
            where=_IS_NO_TRACE,
        )
        self._sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(
            self._engine, expire_on_commit=False
        )

    def explain(self, error: Exception) -> str:
        """Return the driver's error message, without the password, the statement and its values."""
        cause = error.orig or error if isinstance(error, StatementError) else error
        password = self._engine.url.password
        said = str(cause).partition("\n")[0]  # PostgreSQL's details show rows
        if not said:  # as of a time limit
            return type(cause).__name__
        return f"{type(cause).__name__}: {said.replace(password, '…') if password else said}"

    async def bring_up_to_date(self) -> None:
        """Run the missing migrations."""
        await bring_up_to_date(self._engine, self._place.watched)

    async def close(self) -> None:
        await self._engine.dispose()

    async def find(self, response_id: str) -> StoredResponse | None:
        async with self._sessions() as session:
            row = await session.get(ResponseRow, response_id)
            if row is None or row.expires_at == 0:
                return None
            record = await asyncio.to_thread(from_row, row)
            if record.status not in RUNNING:
                return record
            now = await session.scalar(select(self._now))
            return msgspec.structs.replace(record, abandoned=row.lease_until < int(now or 0))

    async def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response but for a trace; True if this owner had it."""
        empty = {"body": _EMPTY, "input": _EMPTY, "context": _EMPTY, "events": None, "size": 0}
        async with self._sessions() as session:
            stored = await session.execute(
                update(ResponseRow)
                .where(ResponseRow.id == response_id, ResponseRow.owner == owner, _IS_NO_TRACE)
                .values(
                    owner="",
                    expires_at=0,
                    status=RUNNING[0],
                    lease_until=self._now + _TRACE_SECONDS,
                    **empty,
                )
            )
            await session.commit()
            return _count(stored) > 0

    async def write(
        self, records: Sequence[StoredResponse], gone: Collection[str], *, lease: int
    ) -> int:
        """Store these records, replacing any with the same ids; return their size in bytes. One
        that was deleted stays deleted. Records whose ids are in ``gone``, which may grow meanwhile,
        are not kept. Those still in progress get a lease of ``lease`` seconds."""
        rows = await asyncio.to_thread(lambda: [to_row(record) for record in records])
        size: int = sum(row["size"] for row in rows)
        async with self._sessions() as session:
            connection = await session.connection()
            for row in rows:
                await connection.execute(self._upsert, row)
            await self._lease(session, [r.id for r in records if r.status in RUNNING], lease)
            await self._remove(session, gone)
            await session.commit()
        return size

    async def remove(self, ids: Collection[str]) -> None:
        """Delete these responses, of any owners."""
        async with self._sessions() as session:
            await self._remove(session, ids)
            await session.commit()

    async def _remove(self, session: AsyncSession, ids: Collection[str]) -> None:
        for part in _parts(ids):
            those = ResponseRow.id.in_(part)
            await session.execute(delete(ResponseRow).where(those, _IS_NO_TRACE))

    async def missing(self, ids: Collection[str]) -> Missing:
        """Return which of these responses there are no longer."""
        deleted: set[str] = set()
        lost = set(ids)
        columns = select(ResponseRow.id, _IS_NO_TRACE)
        async with self._sessions() as session:
            for part in _parts(ids):
                rows = await session.execute(columns.where(ResponseRow.id.in_(part)))
                for response_id, is_there in rows:
                    lost.discard(response_id)
                    if not is_there:
                        deleted.add(response_id)
        return Missing(deleted, lost)

    async def _lease(self, session: AsyncSession, ids: Collection[str], seconds: int) -> None:
        """Set leases by the database's clock, because the replicas' clocks may differ."""
        for part in _parts(ids):
            await session.execute(
                update(ResponseRow)
                .where(ResponseRow.id.in_(part), _IS_NO_TRACE)
                .values(lease_until=self._now + seconds)
            )

    async def sweep(
        self,
        *,
        responses: int,
        size: int,
        running: Collection[str],
        lease: int,
        deletes: bool = True,
    ) -> None:
        """Renew the lease of responses in progress, ``running``, for ``lease`` seconds. If this
        process ``deletes``: delete expired ones and, beyond ``responses`` or ``size`` bytes, the
        oldest ones of the largest owners that have ended.

        Each owner's responses are numbered from its newest on. The lowest numbers are kept,
        regardless of owner: so an owner only loses responses if it has more than its share, and the
        others' unused shares are available to all.
        """
        now = int(time.time())
        newest_first = (ResponseRow.created_at.desc(), ResponseRow.id.desc())
        of_owner: Any = {"partition_by": ResponseRow.owner, "order_by": newest_first}
        rows = (
            select(
                ResponseRow.id,
                ResponseRow.created_at,
                ResponseRow.size,
                func.row_number().over(**of_owner).label("own_place"),
                func.sum(ResponseRow.size).over(**of_owner).label("own_bytes"),
            )
            .where(_IS_NO_TRACE)
            .subquery()
        )
        newer = (rows.c.created_at.desc(), rows.c.id.desc())
        ranked = select(
            rows.c.id,
            func.row_number().over(order_by=(rows.c.own_place, *newer)).label("place"),
            func.sum(rows.c.size).over(order_by=(rows.c.own_bytes, *newer)).label("bytes_so_far"),
        ).subquery()
        too_much = select(ranked.c.id).where(
            or_(ranked.c.place > responses, ranked.c.bytes_so_far > size)
        )
        async with self._sessions() as session:
            await self._lease(session, running, lease)
            if deletes:
                has_ended = or_(
                    ResponseRow.status.not_in(RUNNING), ResponseRow.lease_until < self._now
                )
                for no_longer in (ResponseRow.expires_at <= now, ResponseRow.id.in_(too_much)):
                    await session.execute(delete(ResponseRow).where(no_longer, has_ended))
            await session.commit()


def _parts(ids: Collection[str]) -> Iterator[list[str]]:
    """Yield as many at a time as a statement accepts: databases limit its values to some 32,000."""
    ordered = sorted(ids)
    for at in range(0, len(ordered), _MOST_VALUES):
        yield ordered[at : at + _MOST_VALUES]


def _count(result: Any) -> int:
    return int(result.rowcount)


def make_engine(place: StorePlace, *, connections: int = 4) -> AsyncEngine:
    """``connections``: kept to PostgreSQL; under load there may be twice as many."""
    if place.watched is not None:
        return make_sqlite_engine(place, place.watched)
    return create_async_engine(
        database_url(place),
        pool_size=connections,
        max_overflow=connections,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args={"timeout": 5, "command_timeout": 10},
    )


def make_sqlite_engine(place: StorePlace, file: WatchedFile) -> AsyncEngine:
    """Its connections raise FileReplacedError while another file has replaced the first."""
    engine = create_async_engine(database_url(place), connect_args={"timeout": 10})

    def check(*_: object) -> None:
        file.check()

    event.listen(engine.sync_engine, "do_connect", check)
    event.listen(engine.sync_engine, "checkout", check)
    event.listen(engine.sync_engine, "connect", _tune_sqlite)
    return engine


def _tune_sqlite(connection: Any, _record: object) -> None:
    """With the write-ahead log, a machine failure may lose the last moment, but never the file."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
