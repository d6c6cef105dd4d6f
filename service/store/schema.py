"""Where the database is, and bringing its schema up to date."""

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
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_MIGRATIONS = Path(__file__).with_name("migrations")


def state_dir() -> Path:
    """Where a server keeps what outlives it, by the XDG convention."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "quire"


def database_url(text: str) -> URL:
    """``text`` as operators write it, with the driver we use; empty: a file in ``state_dir``.

    Raises ValueError for what is neither SQLite nor PostgreSQL.
    """
    if not text:
        return URL.create(_DRIVERS["sqlite"], database=str(state_dir() / "responses.sqlite3"))
    try:
        url = make_url(text)
    except ArgumentError:
        raise ValueError("the store's URL is not one, such as postgresql://host/name") from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None or (driver.startswith("sqlite") and not url.database):
        raise ValueError("the store is sqlite:///FILE or postgresql://…")
    return url.set(drivername=driver)


def secret_dir(url: URL | None) -> Path:
    """The folder for what must be kept beside the store."""
    if url is not None and url.drivername.startswith("sqlite"):
        return Path(url.database or "").absolute().parent
    return state_dir()


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
