"""The SQL of stored API keys. Each method of ``KeyDatabase`` is one transaction.

No row is ever deleted: the first key of an alias, even if it is revoked, says who its tenant is.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Integer,
    Row,
    Table,
    Text,
    bindparam,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.database import make_engine
from service.store.place import StorePlace
from service.store.schema import SchemaError, bring_up_to_date
from service.store.tables import ResponseRow
from service.tenants.stored_key import KeyGrant, StoredKey

_metadata = ResponseRow.metadata
_REVISION_BITS = 62

# ``details``: a ``KeyGrant`` as JSON. Times are seconds since the epoch.
KEY_TABLE = Table(
    "quire_keys",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("shown", Text, nullable=False),
    Column("alias", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=True),
    Column("revoked", Double, nullable=True),
    Column("last_used", Double, nullable=True),
)
# One row, whose number is replaced by a random one with each change of a key.
KEY_STATE_TABLE = Table(
    "quire_key_state",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
)


class KeyDatabase:
    """Connects on first use. Methods raise one of ``FAILURES`` when the database does not
    respond."""

    FAILURES: tuple[type[Exception], ...] = (
        *(SQLAlchemyError, sqlite3.Error, SchemaError),
        *(OSError, TimeoutError),
    )

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._engine = make_engine(place, connections=1)

    async def close(self) -> None:
        await self._engine.dispose()

    async def bring_up_to_date(self) -> None:
        """Run the missing migrations."""
        await bring_up_to_date(self._engine, self._place.watched)

    async def revision(self) -> int:
        """Return a number that changes with each change of a key, but not with its use."""
        async with self._engine.connect() as connection:
            found = await connection.scalar(select(KEY_STATE_TABLE.c.revision))
            return int(found or 0)

    async def now(self) -> float:
        """Return the time in seconds since the epoch, by the database's clock: the servers' may
        differ."""
        if self._place.backend != "postgresql":
            return time.time()
        async with self._engine.connect() as connection:
            epoch = func.extract("epoch", func.clock_timestamp())
            return float(await connection.scalar(select(epoch)) or 0)

    async def keys(self) -> tuple[StoredKey, ...]:
        """Return all keys, the oldest first."""
        async with self._engine.connect() as connection:
            return await _all_keys(connection)

    async def add(
        self,
        key: StoredKey,
        *,
        ending: Collection[str] = (),
        at: float = 0.0,
        revokes: bool = False,
    ) -> tuple[StoredKey, tuple[StoredKey, ...]]:
        """Add a key, as the newest of its alias, and return it as it is stored. Those whose ids are
        in ``ending`` expire ``at`` a time, if not before, or are revoked then, if it ``revokes``
        them, which takes effect whatever a server's clock says; they are returned as they are
        then."""
        columns = KEY_TABLE.c
        async with self._engine.begin() as connection:
            await _advance(connection)
            # The clock of the machine that made the one before may be ahead of this one's.
            newest = await connection.scalar(
                select(func.max(columns.created)).where(columns.alias == key.grant.alias)
            )
            if newest is not None and newest >= key.created:
                key = msgspec.structs.replace(key, created=math.nextafter(newest, math.inf))
            await connection.execute(KEY_TABLE.insert(), [_to_values(key)])
            # Not those that another call has revoked meanwhile: they are not to be restored.
            valid = [one.id for one in await _all_keys(connection, ending) if one.revoked is None]
            if valid:
                column = columns.revoked if revokes else columns.expires
                await connection.execute(
                    update(KEY_TABLE)
                    .where(columns.id.in_(valid), or_(column.is_(None), column > at))
                    .values({column: at})
                )
            return key, await _all_keys(connection, valid)

    async def revoke(
        self,
        ids: Collection[str],
        at: float,
        *,
        restored: Collection[tuple[StoredKey, StoredKey]] = (),
    ) -> tuple[StoredKey, ...]:
        """Return the keys as they are then. ``restored``: other keys, and how they were before,
        whose ends they get back unless they have been changed since they were read."""
        async with self._engine.begin() as connection:
            await _advance(connection)
            columns = KEY_TABLE.c
            await connection.execute(
                update(KEY_TABLE)
                .where(columns.id.in_(sorted(ids)), columns.revoked.is_(None))
                .values(revoked=at)
            )
            for key, before in restored:
                await connection.execute(
                    update(KEY_TABLE)
                    .where(
                        columns.id == key.id,
                        columns.expires.is_not_distinct_from(key.expires),
                        columns.revoked.is_not_distinct_from(key.revoked),
                    )
                    .values(expires=before.expires, revoked=before.revoked)
                )
            return await _all_keys(connection, ids)

    async def note_use(self, times: Mapping[str, float]) -> None:
        """Store when keys were last used, by id."""
        statement = (
            update(KEY_TABLE)
            .where(
                KEY_TABLE.c.id == bindparam("which"),
                or_(KEY_TABLE.c.last_used.is_(None), KEY_TABLE.c.last_used < bindparam("moment")),
            )
            .values(last_used=bindparam("moment"))
        )
        # In one order everywhere, so that two replicas do not wait for each other in a circle.
        rows = [{"which": key, "moment": moment} for key, moment in sorted(times.items())]
        async with self._engine.begin() as connection:
            await connection.execute(statement, rows)


async def _advance(connection: AsyncConnection) -> None:
    """First in each transaction: it locks the row, so that changes come one after the other, and
    no reader sees a number before its change."""
    # Not the next number: where a failover or a backup has lost changes, it would come again, and
    # servers that have read it would not notice. Older servers add 1, for which there is room.
    await connection.execute(
        update(KEY_STATE_TABLE).values(revision=secrets.randbits(_REVISION_BITS))
    )


async def _all_keys(
    connection: AsyncConnection, ids: Collection[str] | None = None
) -> tuple[StoredKey, ...]:
    statement = select(KEY_TABLE).order_by(KEY_TABLE.c.created, KEY_TABLE.c.id)
    if ids is not None:
        statement = statement.where(KEY_TABLE.c.id.in_(sorted(ids)))
    rows: Sequence[Row[Any]] = (await connection.execute(statement)).all()
    return await asyncio.to_thread(lambda: tuple(map(_from_row, rows)))


def _to_values(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "digest": key.digest,
        "shown": key.shown,
        "alias": key.grant.alias,
        "details": msgspec.json.encode(key.grant).decode(),
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
        "last_used": key.last_used,
    }


def _from_row(row: Row[Any]) -> StoredKey:
    return StoredKey(
        id=row.id,
        shown=row.shown,
        digest=row.digest,
        grant=msgspec.json.decode(row.details, type=KeyGrant),
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
        last_used=row.last_used,
    )
