"""The oldest go first, and no figure of usage is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from observability.admin_api import RequestQuery
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup
from service.store import archive, retention
from service.store.archive_tables import REQUEST_TABLE, USAGE_TABLE
from service.store.retention import BatchSize, delete_oldest_rows
from service.store.sweep import ArchiveLimits
from tests.service.store.archived import BASE, archived, ids, kept

DAY = 86_400.0
DAY_THEN = (int(BASE // DAY) - 10) * 24  # in hours
DAY_AFTER = DAY_THEN + 24
A = UsageGroup("a", "m", "chat_completions")
B = UsageGroup("b", "m", "chat_completions")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 7)
    monkeypatch.setattr(retention, "FEWEST_AT_ONCE", 7)


@pytest.mark.usefixtures("small_batches")
async def test_requests_that_are_too_old_are_deleted(url: str) -> None:
    old = [kept(number, ended=BASE - 3 * DAY - number) for number in range(10)]
    young = [kept(number) for number in range(100, 110)]
    async with archived(url, ArchiveLimits(request_days=1.5)) as one:
        one.keep(*old, *young)
        await one.written()
        assert one.archive._database is not None
        before = BASE - 1.5 * DAY
        while await one.archive._database.delete_requests(before=before, most=10**6):
            pass
        page = await one.archive.query(RequestQuery(sort="-ended"))
        assert ids(page.requests) == ids(young)


@pytest.mark.usefixtures("small_batches")
async def test_requests_beyond_the_limit_are_deleted_the_oldest_first(url: str) -> None:
    requests = [kept(number) for number in range(59, -1, -1)]
    async with archived(url) as one:
        one.keep(*requests)
        await one.written()
        database = one.archive._database
        assert database is not None

        async def left() -> list[str]:
            while await database.delete_requests(before=0.0, most=25):
                pass
            return ids((await one.archive.query(RequestQuery(sort="-ended"))).requests)

        if url.startswith("sqlite"):
            assert await left() == ids(requests[::-1][:25])
            return
        # PostgreSQL's estimate of its rows comes a moment later.
        async with asyncio.timeout(60):
            while len(await left()) > 25:
                await asyncio.sleep(0.1)
        assert await left() == ids(requests[::-1][:25])


async def test_old_hours_become_days_and_sums_stay(url: str) -> None:
    async with archived(url) as one:
        database = one.archive._database
        assert database is not None

        def used(hour: int, group: UsageGroup, tokens: float) -> HourlyUsage:
            return HourlyUsage(0, hour, group, UsageFigures(output_tokens=tokens, seconds=0.5))

        for boot in (1, 2):
            await database.write_usage(
                boot,
                [
                    used(DAY_THEN, A, 1),
                    used(DAY_THEN + 1, A, 2),
                    used(DAY_THEN + 23, B, 4),
                    used(DAY_AFTER, A, 8),
                ],
            )
        for _ in range(2):
            await database.merge_usage(before_hour=DAY_AFTER)
        await database.write_usage(3, [used(DAY_THEN + 2, A, 16)])  # written late
        await database.merge_usage(before_hour=DAY_AFTER)
        rows = await database.rows(
            USAGE_TABLE.select().order_by(USAGE_TABLE.c.hour, USAGE_TABLE.c.key, USAGE_TABLE.c.boot)
        )
        found = [(r.hour, r.key, r.boot, r.requests, r.output_tokens, r.seconds) for r in rows]
        assert found == [
            (DAY_THEN, "a", 0, 5, 22, 2.5),
            (DAY_THEN, "b", 0, 2, 8, 1.0),
            (DAY_AFTER, "a", 1, 1, 8, 0.5),
            (DAY_AFTER, "a", 2, 1, 8, 0.5),
        ]
        await database.delete_usage(before_hour=DAY_AFTER)
        assert len(await database.rows(USAGE_TABLE.select())) == 2


async def test_a_batch_leaves_what_is_more_than_it_may_delete(tmp_path: Path) -> None:
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        one.keep(*(kept(number, ended=BASE - 3 * DAY - number) for number in range(10)))
        await one.written()
        database = one.archive._database
        assert database is not None

        with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
            assert delete_oldest_rows(connection, before=BASE, most=10, rows=4)
            connection.commit()
        left = await database.rows(select(REQUEST_TABLE.c.request_id))
        assert {row.request_id for row in left} == set(ids(kept(number) for number in range(6)))
        with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
            assert not delete_oldest_rows(connection, before=BASE, most=10, rows=7)
            connection.commit()
        assert await database.rows(select(REQUEST_TABLE.c.request_id)) == []


async def test_the_last_batch_is_no_larger_than_what_is_beyond_the_limit(tmp_path: Path) -> None:
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        one.keep(*(kept(number) for number in range(10)))
        await one.written()
        with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
            assert not delete_oldest_rows(connection, before=0.0, most=8, rows=7)
            connection.commit()
        page = await one.archive.query(RequestQuery())
        assert len(page.requests) == 8


@pytest.mark.parametrize("seconds_per_row", [1e-5, 2e-5, 1e-4, 2e-4])
def test_a_batch_becomes_as_large_as_its_time_allows(seconds_per_row: float) -> None:
    batch = BatchSize()
    for _ in range(20):
        batch.adapt(batch.rows * seconds_per_row)
    assert batch.rows * seconds_per_row == pytest.approx(0.025, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "rows"), [(0.0, retention.MOST_AT_ONCE), (9.0, retention.FEWEST_AT_ONCE)]
)
def test_a_batch_never_becomes_too_large_or_too_small(seconds: float, rows: int) -> None:
    batch = BatchSize()
    for _ in range(20):
        batch.adapt(seconds)
    assert batch.rows == rows


def test_one_slow_batch_does_not_make_the_next_ones_tiny() -> None:
    batch = BatchSize()
    before = batch.rows
    batch.adapt(9.0)
    assert batch.rows == before // 2


def test_more_is_deleted_at_once_than_written() -> None:
    """So the table cannot grow for as long as requests come."""
    assert retention.FEWEST_AT_ONCE > archive._BATCH
