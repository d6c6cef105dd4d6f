from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from observability.admin_api import RequestQuery
from service.records.row import row_of
from service.store import sqlite_requests
from service.store.archive_database import ArchiveDatabase
from service.store.packed_request import pack_request
from service.store.sqlite_requests import RowsRefusedError, SqliteRequests
from service.store.watched_file import FileReplacedError, WatchedFile
from tests.service.store.archived import archived, ids, kept


@asynccontextmanager
async def table(folder: Path) -> AsyncIterator[tuple[SqliteRequests, sqlite3.Connection]]:
    """The table in a new database, and a connection that looks at it."""
    file = folder / "store.sqlite3"
    async with archived(f"sqlite:///{file}"):
        requests = SqliteRequests(file, WatchedFile(file))
        with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
            yield requests, connection
        await requests.close()


def stored(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT request_id FROM quire_requests")]


async def test_a_row_is_inserted_once_and_reads_as_it_was_written(tmp_path: Path) -> None:
    rows = [pack_request(row_of(kept(number))) for number in range(3)]
    async with table(tmp_path) as (requests, connection):
        await requests.insert(rows[:2])
        await requests.insert(rows)
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute("SELECT * FROM quire_requests")]
        assert sorted(found, key=lambda row: row["ended"]) == sorted(
            rows, key=lambda row: row["ended"]
        )
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        page = await one.archive.query(RequestQuery(sort="-ended"))
        assert sorted(ids(page.requests)) == sorted(ids(kept(number) for number in range(3)))


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_was_deleted_is_an_error_not_a_silent_loss(
    tmp_path: Path, is_replaced: bool
) -> None:
    async with table(tmp_path) as (requests, _):
        await requests.insert([pack_request(row_of(kept(1)))])
        file = tmp_path / "store.sqlite3"
        file.unlink()
        if is_replaced:
            file.write_bytes(b"")
        with pytest.raises(FileReplacedError):
            await requests.insert([pack_request(row_of(kept(2)))])


@pytest.mark.parametrize("count", [1, 150])
@pytest.mark.parametrize(
    "wrong", [{"outcome": None}, {"prompt_tokens": 2**63}, {"model": "\ud800"}], ids=str
)
async def test_a_row_that_cannot_be_stored_refuses_the_rows_with_it(
    tmp_path: Path, wrong: dict[str, Any], count: int
) -> None:
    good = [pack_request(row_of(kept(number))) for number in range(count)]
    bad = {**pack_request(row_of(kept(count))), **wrong}
    async with table(tmp_path) as (requests, connection):
        with pytest.raises(RowsRefusedError):
            await requests.insert([*good, bad])
        assert stored(connection) == []
        await requests.insert([*good, good[0]])
        assert sorted(stored(connection)) == sorted(row["request_id"] for row in good)


async def test_a_locked_database_is_a_failure_of_the_database_and_not_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_requests, "BUSY_SECONDS", 0.05)
    async with table(tmp_path) as (requests, connection):
        # In a thread: what it waits for may be a transaction that needs this event loop.
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        with pytest.raises(ArchiveDatabase.FAILURES):
            await requests.insert([pack_request(row_of(kept(1)))])
        connection.rollback()
        await requests.insert([pack_request(row_of(kept(1)))])
        assert stored(connection) == ids([kept(1)])


async def test_a_database_that_could_not_be_opened_is_opened_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for one whose file was replaced, which only a restart mends."""
    monkeypatch.setattr(sqlite_requests, "BUSY_SECONDS", 0.05)
    async with table(tmp_path):
        pass
    file = tmp_path / "store.sqlite3"
    requests = SqliteRequests(file, WatchedFile(file))
    with closing(sqlite3.connect(file)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await requests.insert([pack_request(row_of(kept(1)))])
    await requests.insert([pack_request(row_of(kept(1)))])
    await requests.close()
    with closing(sqlite3.connect(file)) as connection:
        assert stored(connection) == ids([kept(1)])
