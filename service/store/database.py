"""The database of stored responses: the store's operations in SQL.

This module's imports take longer to load than everything else in a worker, so
``service.store.store`` imports it in a thread while the worker already answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

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
from service.store.running import TRACE_KEPT_SECONDS, Missing
from service.store.schema import bring_up_to_date, database_url
from service.store.tables import Base, ResponseRow, from_row, to_row
from service.store.watched_file import WatchedFile

_TABLE = Base.metadata.tables[ResponseRow.__tablename__]
_MOST_VALUES = 10_000
# The trace of a response that was deleted in progress: a row without an owner or content, which
# never was valid. It keeps replicas that still work on the response from storing it again, and is
# swept when its lease ends. No response has such an id, so earlier versions never write it.
_TRACE = "deleted:"


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
            if row is None:
                return None
            record = await asyncio.to_thread(from_row, row)
            if record.status not in RUNNING:
                return record
            now = await session.scalar(select(self._now))
            return msgspec.structs.replace(record, abandoned=row.lease_until < int(now or 0))

    async def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response, with a trace if it is in progress; True if this owner had it."""
        those = (ResponseRow.id == response_id, ResponseRow.owner == owner)
        async with self._sessions() as session:
            status = await session.scalar(
                delete(ResponseRow).where(*those).returning(ResponseRow.status)
            )
            if status in RUNNING:
                connection = await session.connection()
                await connection.execute(self._upsert, to_row(_trace_of(response_id)))
                await self._lease(session, [_TRACE + response_id], TRACE_KEPT_SECONDS)
            await session.commit()
            return status is not None

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
            for record, row in zip(records, rows, strict=True):
                if record.must_exist:
                    of_it = _TABLE.c.id == record.id
                    await connection.execute(update(_TABLE).where(of_it).values(row))
                else:
                    await connection.execute(self._upsert, row)
            await self._lease(session, [r.id for r in records if r.status in RUNNING], lease)
            # Only now: a statement above may have waited for the transaction that deleted its row.
            deleted = await self._deleted(session, [record.id for record in records])
            await self._remove(session, {*gone, *deleted})
            await session.commit()
        return size

    async def remove(self, ids: Collection[str]) -> None:
        """Delete these responses, of any owners."""
        async with self._sessions() as session:
            await self._remove(session, ids)
            await session.commit()

    async def _remove(self, session: AsyncSession, ids: Collection[str]) -> None:
        for part in _parts(ids):
            await session.execute(delete(ResponseRow).where(ResponseRow.id.in_(part)))

    async def missing(self, ids: Collection[str]) -> Missing:
        """Return which of these responses there are no longer."""
        async with self._sessions() as session:
            missing = set(ids) - await _present(session, ids)
            deleted = await self._deleted(session, missing)
        return Missing(deleted, missing - deleted)

    async def _deleted(self, session: AsyncSession, ids: Collection[str]) -> set[str]:
        """Return those of which there is a trace."""
        traces = await _present(session, [_TRACE + each for each in ids])
        return {trace.removeprefix(_TRACE) for trace in traces}

    async def _lease(self, session: AsyncSession, ids: Collection[str], seconds: int) -> None:
        """Set leases by the database's clock, because the replicas' clocks may differ."""
        for part in _parts(ids):
            await session.execute(
                update(ResponseRow)
                .where(ResponseRow.id.in_(part))
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
            .where(ResponseRow.expires_at > 0)  # no trace
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


async def _present(session: AsyncSession, ids: Collection[str]) -> set[str]:
    """Return which of these ids there are rows of."""
    found: set[str] = set()
    for part in _parts(ids):
        found.update(await session.scalars(select(ResponseRow.id).where(ResponseRow.id.in_(part))))
    return found


def _trace_of(response_id: str) -> StoredResponse:
    return StoredResponse(
        id=_TRACE + response_id,
        owner="",
        created_at=0,
        expires_at=0,
        status=RUNNING[0],
        body=b"",
        input=b"",
        context=b"",
    )


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
