"""Queries that take too long are stopped; rows that are refused do not hold up others."""

from __future__ import annotations

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from service.records.row import row_of
from service.store import archive_database
from service.store.archive_database import QueryTooLongError
from service.store.archive_tables import REQUEST_TABLE
from service.store.packed_request import pack_request
from tests.service.running_postgres import Postgres
from tests.service.store.archived import BASE, archived, kept
from tests.service.store.stored import execute

SLOW = {
    "sqlite": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT count(*) FROM n WHERE i < 0"
    ),
    "postgresql": "SELECT pg_sleep(60)",
}


async def test_a_query_that_takes_too_long_is_stopped(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived(url) as one:
        database = one.archive._database
        assert database is not None
        monkeypatch.setattr(archive_database, "QUERY_SECONDS", 0.3)
        with pytest.raises(QueryTooLongError):
            await database.rows(text(SLOW[database.backend]))  # type: ignore[arg-type]
        monkeypatch.undo()
        one.keep(kept(1))
        await one.written()
        assert list(await database.rows(select(text("1")))) == [(1,)]


@pytest.mark.debian
async def test_a_connection_that_is_lost_late_is_not_a_slow_query(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await execute(postgres.url, "CREATE DATABASE lost")
    async with archived(postgres.url.replace("/postgres", "/lost")) as one:
        database = one.archive._database
        assert database is not None
        monkeypatch.setattr(archive_database, "QUERY_SECONDS", 0.0)  # PostgreSQL: no limit
        with pytest.raises(DBAPIError):
            await database.rows(text("SELECT pg_terminate_backend(pg_backend_pid())"))  # type: ignore[arg-type]


async def test_a_row_that_is_refused_is_left_out_and_has_its_error(url: str) -> None:
    good = [pack_request(row_of(kept(number))) for number in range(3)]
    bad = {**good[1], "outcome": None}
    async with archived(url) as one:
        database = one.archive._database
        assert database is not None
        [error] = await database.insert_requests([good[0], bad, good[2]])
        assert error in ("IntegrityError", "NotNullViolationError, SQLSTATE 23502")
        assert await database.insert_requests(good) == []
        found = await database.rows(select(REQUEST_TABLE.c.request_id))
        assert sorted(row[0] for row in found) == [row["request_id"] for row in good]


@pytest.mark.debian
async def test_a_day_that_was_dropped_elsewhere_is_made_again(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE dropped")
    url = postgres.url.replace("/postgres", "/dropped")
    async with archived(url) as one:
        one.keep(kept(1))
        await one.written()
        await execute(url, f"DROP TABLE quire_requests_d{int(BASE - 1) // 86_400}")
        one.keep(kept(1), kept(2, ended=BASE - 1))
        await one.written()
        assert one.dropped == 0
        assert await one.archive.find(kept(2).request_id) is not None
