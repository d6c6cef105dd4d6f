"""The database's URL, and bringing its schema up to date."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    """With the driver that we use."""
    driver = _DRIVERS[place.backend]
    if place.url is None:
        return URL.create(driver, database=str(place.file))
    return make_url(place.url).set(drivername=driver)


async def bring_up_to_date(engine: AsyncEngine) -> None:
    """Run the migrations that are missing, one replica at a time."""
    config = SQLAlchemyAsyncConfig(
        engine_instance=engine,
        alembic_config=AlembicAsyncConfig(
            script_location=str(_MIGRATIONS), version_table_name="quire_schema_version"
        ),
    )
    async with _file_lock(engine.url):
        await asyncio.to_thread(AlembicCommands(config).upgrade, "head")


@asynccontextmanager
async def _file_lock(url: URL) -> AsyncIterator[None]:
    if not url.drivername.startswith("sqlite"):
        yield
        return
    assert url.database is not None
    path = Path(url.database)
    await asyncio.to_thread(path.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
    # Made here, as SQLite would let others read it; its side files take after it.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
