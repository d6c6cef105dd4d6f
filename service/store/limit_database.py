"""What each replica's tenants use of their limits, in a PostgreSQL database that replicas share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    Interval,
    Table,
    Text,
    case,
    cast,
    delete,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, Insert, insert
from sqlalchemy.exc import SQLAlchemyError

from service.store.database import make_engine
from service.store.place import StorePlace
from service.store.tables import ResponseRow
from service.tenants.limit_ledger import MinuteUse
from service.tenants.tenant_cells import OPEN_LEASE, WINDOW

_metadata = ResponseRow.metadata

# ``at``: by the database's clock, because the replicas' clocks may differ.
LIMIT_USE_TABLE = Table(
    "quire_limit_use",
    _metadata,
    Column("replica", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("in_progress", Integer, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
)


class LimitDatabase:
    """Connects on first use. Methods raise one of ``FAILURES`` when the database does not
    respond."""

    FAILURES: tuple[type[Exception], ...] = (SQLAlchemyError, OSError, TimeoutError)

    def __init__(self, place: StorePlace) -> None:
        self._engine = make_engine(place, connections=1)

    async def close(self) -> None:
        await self._engine.dispose()

    async def exchange(self, replica: str, used: Mapping[str, MinuteUse]) -> dict[str, MinuteUse]:
        """Replace what this replica has stored by ``used``; return the sums of all others. A
        replica that no longer reports counts until its last minute is over, its requests in
        progress for ``OPEN_LEASE`` seconds."""
        table, columns = LIMIT_USE_TABLE, LIMIT_USE_TABLE.c
        mine = columns.replica == replica
        # now() is when the transaction began, so this transaction's rows all have it.
        gone = delete(table).where(
            or_(mine & (columns.at != func.now()), columns.at < _seconds_ago(WINDOW))
        )
        async with self._engine.begin() as connection:
            if used:
                await connection.execute(_upsert(replica, used))
            await connection.execute(gone)
            live = case((columns.at > _seconds_ago(OPEN_LEASE), columns.in_progress), else_=0)
            sums = (_sum(columns.requests), _sum(columns.tokens), _sum(live))
            others = select(columns.alias, *sums).where(~mine).group_by(columns.alias)
            found = await connection.execute(others)
            return {alias: MinuteUse(*figures) for alias, *figures in found.all()}


def _upsert(replica: str, used: Mapping[str, MinuteUse]) -> Insert:
    """Return an upsert that sends one array per column: PostgreSQL accepts at most 32,767 values in
    a statement."""
    # In one order everywhere, so that two replicas do not wait for each other in a circle.
    rows = sorted(used.items())
    arrays = (
        literal([alias for alias, _ in rows], ARRAY(Text)),
        literal([use.requests for _, use in rows], ARRAY(BigInteger)),
        literal([use.tokens for _, use in rows], ARRAY(BigInteger)),
        literal([use.in_progress for _, use in rows], ARRAY(Integer)),
    )
    names = ("alias", *MinuteUse._fields)
    sent = func.unnest(*arrays).table_valued(*names, name="sent").render_derived()
    row = select(literal(replica), *(sent.c[name] for name in names), func.now())
    new = insert(LIMIT_USE_TABLE).from_select(["replica", *names, "at"], row)
    return new.on_conflict_do_update(
        index_elements=["replica", "alias"],
        set_={name: new.excluded[name] for name in (*MinuteUse._fields, "at")},
    )


def _seconds_ago(seconds: int) -> Any:
    return func.now() - cast(literal(f"{seconds} seconds"), Interval)


def _sum(column: Any) -> Any:
    return cast(func.sum(column), BigInteger)  # PostgreSQL's sums of integers are decimals
