"""The migrations make the tables that the code has, once, in a file for its user alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from service.store import archive_tables, key_database, limit_database
from service.store.place import store_place
from service.store.schema import NEWEST, SchemaError, bring_up_to_date, database_url
from service.store.tables import ResponseRow
from tests.service.store.stored import execute, opened, record, rows_of

ROOT = Path(__file__).resolve().parents[3]


# All tables are known only once their modules are loaded.
TABLES = (
    archive_tables.REQUEST_TABLE,
    key_database.KEY_TABLE,
    limit_database.LIMIT_USE_TABLE,
    ResponseRow.__table__,
)


async def test_migrations_make_the_tables_that_the_code_has(url: str) -> None:
    assert {table.metadata for table in TABLES} == {ResponseRow.metadata}
    async with opened(url):
        pass
    engine = create_async_engine(database_url(store_place(url)))

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"version_table": "quire_schema_version", "include_name": not_a_day}
        )
        return list(compare_metadata(context, ResponseRow.metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


def not_a_day(name: str | None, kind: str, _parents: object) -> bool:
    """A day of ``quire_requests`` is a table only in PostgreSQL."""
    return not (kind == "table" and name is not None and name.startswith("quire_requests_d"))


@pytest.mark.proves("migrations", "process")
async def test_a_schema_one_migration_newer_is_used_and_a_still_newer_one_is_refused(
    url: str,
) -> None:
    async with opened(url) as store:
        await store.put(record("resp_a"))
    newer = "UPDATE quire_schema_version SET version_num = '{:04}'"
    await execute(url, newer.format(NEWEST + 1))
    async with opened(url) as store:
        assert await store.get("resp_a", "me") is not None
    await execute(url, newer.format(NEWEST + 2))
    engine = create_async_engine(database_url(store_place(url)))
    with pytest.raises(SchemaError, match=f"version {NEWEST + 2}, .* up to {NEWEST + 1}"):
        await bring_up_to_date(engine)
    await engine.dispose()


async def test_a_version_that_is_not_a_number_is_refused(url: str) -> None:
    async with opened(url):
        pass
    await execute(url, "UPDATE quire_schema_version SET version_num = 'garbage'")
    engine = create_async_engine(database_url(store_place(url)))
    with pytest.raises(SchemaError, match="quire_schema_version has 'garbage'"):
        await bring_up_to_date(engine)
    await engine.dispose()


REPLICA = """
import asyncio, sys
from sqlalchemy.ext.asyncio import create_async_engine
from service.store.place import store_place
from service.store.schema import bring_up_to_date, database_url

engine = create_async_engine(database_url(store_place(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(bring_up_to_date(engine))
"""


@pytest.mark.proves("migrations", "replicas")
async def test_replicas_that_start_together_on_an_empty_database_migrate_it_once(url: str) -> None:
    if url.startswith("postgresql"):
        await execute(url, "CREATE DATABASE empty")
        url = url.replace("/postgres", "/empty")
    replicas = [
        subprocess.Popen(
            [sys.executable, "-c", REPLICA, url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for replica in replicas:
        assert replica.stdout is not None
        assert replica.stdout.readline() == b"ready\n"
    ends = await asyncio.gather(*(asyncio.to_thread(end, replica) for replica in replicas))
    assert ends == [(0, b"")] * 3
    async with opened(url) as store:
        assert await rows_of(store, "any") == 0


def end(replica: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Let it go; its exit code and what it complained of."""
    _, errors = replica.communicate(b"\n", 60)
    return replica.returncode, errors


async def test_opening_a_store_again_keeps_the_locks_of_connections_that_are_open(
    tmp_path: Path,
) -> None:
    """Otherwise another server that ends deletes the log, and what is written here is lost."""
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    log = tmp_path / "store.sqlite3-wal"
    async with opened(url) as store:
        await store.put(record("resp_a"))
        engine = create_async_engine(database_url(store_place(url)))
        await bring_up_to_date(engine)  # as after a failure of the store
        await engine.dispose()
        before = log.stat().st_ino
        other = [sys.executable, "-c", REOPENED, str(tmp_path / "store.sqlite3")]
        done = await asyncio.to_thread(
            subprocess.run, other, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "1\n", done.stderr
        assert log.stat().st_ino == before
        await store.put(record("resp_b"))
        done = await asyncio.to_thread(
            subprocess.run, other, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "2\n", done.stderr


REOPENED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM quire_responses").fetchone()[0])
connection.close()
"""


async def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.sqlite3") as store:
        await store.put(record("resp_a"))
        files = list(tmp_path.iterdir())
        assert len(files) >= 3  # the database, its log, the lock
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)
