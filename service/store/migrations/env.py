"""The script with which alembic brings a database up to date; called by ``service.store.schema``.

Replicas that start at the same time wait for each other here: PostgreSQL by an advisory lock that
lasts as long as the transaction, SQLite by a lock file that the caller holds.
"""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from service.store.archive_tables import REQUEST_TABLE

_LOCK = 0x7175697265  # any number that other users of the database are unlikely to use


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=REQUEST_TABLE.metadata,
        version_table=context.config.attributes["version_table"],
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        context.run_migrations()


async def _run() -> None:
    # The caller's engine belongs to another event loop.
    engine = create_async_engine(context.config.attributes["url"], poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


asyncio.run(_run())
