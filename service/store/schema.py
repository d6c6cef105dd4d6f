"""The database's URL, and schema migrations."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from advanced_alchemy.alembic.commands import AlembicCommands
from advanced_alchemy.config import AlembicAsyncConfig, SQLAlchemyAsyncConfig
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from service.store.place import Backend, StorePlace

_DRIVERS: dict[Backend, str] = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
}
_MIGRATIONS = Path(__file__).with_name("migrations")


def database_url(place: StorePlace) -> URL:
    """Return the URL with the driver that we use."""
    driver = _DRIVERS[place.backend]
    if place.url is None:
        return URL.create(driver, database=str(place.file))
    return make_url(place.url).set(drivername=driver)


async def bring_up_to_date(engine: AsyncEngine) -> None:
    """Run the missing migrations, one replica at a time."""
    config = SQLAlchemyAsyncConfig(
        engine_instance=engine,
        alembic_config=AlembicAsyncConfig(
            script_location=str(_MIGRATIONS), version_table_name="quire_schema_version"
        ),
    )
    async with _file_lock(engine.url):
        if engine.url.database is not None and engine.url.drivername.startswith("sqlite"):
            await asyncio.to_thread(_write_ahead, engine.url.database)
        await asyncio.to_thread(AlembicCommands(config).upgrade, "head")


def _write_ahead(file: str) -> None:
    """Let readers work in parallel with one writer; the setting is stored in the file. Not done at
    each connection, as it briefly needs exclusive access and does not wait for it."""
    with closing(sqlite3.connect(file, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


@asynccontextmanager
async def _file_lock(url: URL) -> AsyncIterator[None]:
    if not url.drivername.startswith("sqlite"):
        yield
        return
    assert url.database is not None
    path = Path(url.database)
    await asyncio.to_thread(path.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
    # Created here, because SQLite would let others read it; its side files inherit the mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
