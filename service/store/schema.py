"""The database's URL, and schema migrations.

A migration only adds (tables, columns that may be empty); what it makes superfluous is removed by a
migration of a later release. So a server works with a schema that is one migration newer than its
own, as in a rolling update, and after its rollback.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from sqlalchemy import Connection, Text, inspect, literal_column, select, table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from observability.logging import get_logger
from service.store.place import Backend, StorePlace
from service.store.watched_file import WatchedFile

_DRIVERS: dict[Backend, str] = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
}
_MIGRATIONS = Path(__file__).with_name("migrations")
_VERSION_TABLE = "quire_schema_version"
# The newest migration of this version of Quire.
NEWEST = max(int(file.name[:4]) for file in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))

_log = get_logger()


class SchemaError(RuntimeError):
    """This version of Quire cannot use the database."""


def database_url(place: StorePlace) -> URL:
    """Return the URL with the driver that we use."""
    driver = _DRIVERS[place.backend]
    if place.url is None:
        return URL.create(driver, database=str(place.file))
    return make_url(place.url).set(drivername=driver)


_migrating = threading.Lock()  # Alembic has one context for the whole process


async def bring_up_to_date(engine: AsyncEngine, file: WatchedFile | None = None) -> None:
    """Run the missing migrations, one replica at a time. A schema that is one migration newer is
    used as it is. ``file``: SQLite's; another one in its place is left as it is. Raises SchemaError
    for a still newer schema, and for a version that is not a number, FileReplacedError."""
    if file is not None:
        file.check()
    async with _file_lock(engine.url):
        if engine.url.database is not None and engine.url.drivername.startswith("sqlite"):
            await asyncio.to_thread(_write_ahead, engine.url.database)
        async with engine.connect() as connection:
            found = await connection.run_sync(_version)
        if found < NEWEST:
            await asyncio.to_thread(_migrate, engine.url)
        elif found == NEWEST + 1:
            _log.info("the store's schema is one migration newer", schema=found, own=NEWEST)
        elif found > NEWEST:
            raise SchemaError(
                f"its schema has version {found}, and this version of Quire can use up to "
                f"{NEWEST + 1}; start the version of Quire that was used last"
            )


def _migrate(url: URL) -> None:
    # Only a new database, or a new version of Quire, needs Alembic; it takes long to load.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"url": url, "version_table": _VERSION_TABLE})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with _migrating:
        command.upgrade(config, "head")


def _version(connection: Connection) -> int:
    """Return the number of the last migration that was run; 0 if there was none."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return 0
    column = literal_column("version_num", Text)
    found = connection.scalar(select(column).select_from(table(_VERSION_TABLE))) or "0"
    if not (found.isascii() and found.isdecimal()):
        raise SchemaError(
            f"its table {_VERSION_TABLE} has {found[:20]!r} where Quire writes a number; "
            "restore a backup, or use another database"
        )
    return int(found)


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
    # Created here, because SQLite would let others read it; its side files inherit the mode. A file
    # that exists is not opened: closing it would release the locks of all connections that this
    # process has to it (POSIX), and another process could then delete the log that they write to.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
