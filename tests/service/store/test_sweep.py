"""Requests are deleted batch by batch until none is left to delete."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.testing import capture_logs

from observability.admin_api import AuditRow, RequestQuery
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup
from service.store import retention
from service.store.archive_database import ArchiveDatabase, audit_values
from service.store.archive_tables import REQUEST_TABLE, USAGE_TABLE
from service.store.place import store_place
from service.store.schema import database_url
from service.store.sweep import ArchiveLimits, Sweep
from tests.service.running_postgres import Postgres
from tests.service.store.archived import BASE, archived, ids, kept
from tests.service.store.stored import execute, until

DAY = 86_400.0


class Counting:
    """A database with so many batches to delete, which records the calls. ``is_read``: none can be
    deleted."""

    FAILURES = (TimeoutError,)

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.asked: list[str] = []
        self.is_read = False

    def explain(self, error: Exception) -> str:
        return str(error)

    async def delete_requests(self, **_: Any) -> bool:
        self.asked.append("requests")
        if self.is_read:
            raise TimeoutError("it is read")
        self.batches -= 1
        return self.batches > 0

    async def delete_usage(self, **_: Any) -> None:
        self.asked.append("usage")

    async def delete_audit(self, **_: Any) -> None:
        self.asked.append("audit")

    async def merge_usage(self, **_: Any) -> None:
        self.asked.append("merge")


async def test_each_run_deletes_one_batch_until_there_are_no_more() -> None:
    database = Counting(3)
    sweep = Sweep(ArchiveLimits())
    asked = []
    for _ in range(5):
        await sweep.run(cast(ArchiveDatabase, database))
        asked.append(list(database.asked))
        database.asked.clear()
    assert asked == [["requests", "usage", "audit", "merge"], ["requests"], ["requests"], [], []]


async def test_only_the_worker_that_leads_deletes() -> None:
    database, leading = Counting(3), [False]
    sweep = Sweep(ArchiveLimits(), leads=lambda: leading[0])
    await sweep.run(cast(ArchiveDatabase, database))
    assert database.asked == []
    leading[0] = True  # the worker that led has died
    await sweep.run(cast(ArchiveDatabase, database))
    assert database.asked == ["requests", "usage", "audit", "merge"]


async def test_usage_is_merged_once_a_day() -> None:
    database = Counting(1)
    sweep = Sweep(ArchiveLimits())
    for _ in range(2):
        await sweep.run(cast(ArchiveDatabase, database))
        sweep._at = 0.0
    assert database.asked == ["requests", "usage", "audit", "merge", "requests", "usage", "audit"]


async def test_what_cannot_be_deleted_holds_up_nothing_else_and_is_said_once() -> None:
    database = Counting(0)
    sweep = Sweep(ArchiveLimits())
    with capture_logs() as lines:
        for is_read in (True, True, False, True):
            database.is_read = is_read
            sweep._at = 0.0
            await sweep.run(cast(ArchiveDatabase, database))
            await sweep.run(cast(ArchiveDatabase, database))  # not due
            assert sweep._at > 0
    assert database.asked.count("requests") == database.asked.count("audit") == 4
    assert [line["error"] for line in lines] == ["it is read"] * 2


@pytest.mark.debian
async def test_a_day_that_is_read_is_dropped_later_and_all_else_works(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE swept")
    url = postgres.url.replace("/postgres", "/swept")
    heard: list[bool] = []
    group = UsageGroup("a", "m", "chat_completions")
    engine = create_async_engine(database_url(store_place(url)))
    limits = ArchiveLimits(request_days=100.0, usage_days=20.0)
    async with archived(url, limits, on_away=heard.append) as one:
        old = kept(1, ended=BASE - 3 * DAY)
        one.keep(old, kept(2))
        await one.written()
        sweep, database = one.archive._sweep, one.archive._database
        assert database is not None
        hour = int((BASE - 21 * DAY) // 3600)
        used = HourlyUsage(0, hour, group, UsageFigures(output_tokens=1.0))
        await until(lambda: sweep._at > 0)
        await database.write_usage(1, [used])
        heard.clear()
        async with engine.connect() as backup:
            await backup.execute(text("SELECT count(*) FROM quire_requests"))
            limits.request_days = 1.0
            with capture_logs() as lines:
                sweep._at = 0.0
                await until(lambda: sweep._at > 0)
            assert "lock timeout" in lines[-1]["error"]
            assert not list(await database.rows(USAGE_TABLE.select()))
            assert await one.archive.find(old.request_id) is not None
            assert await one.archive.usage("key", BASE, BASE + 1) == []
        sweep._at = 0.0
        await until(lambda: sweep._at > 0)
        assert await one.archive.find(old.request_id) is None
        assert True not in heard
    await engine.dispose()


async def test_the_writer_deletes_batch_after_batch_by_itself(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 7)
    monkeypatch.setattr(retention, "FEWEST_AT_ONCE", 7)
    old = [kept(number, ended=BASE - 3 * DAY - number) for number in range(50)]
    async with archived(url, ArchiveLimits(request_days=1.0)) as one:
        one.keep(*old, kept(100))
        await one.written()
        one.archive._sweep._at = 0.0
        database = one.archive._database
        assert database is not None
        async with asyncio.timeout(60):
            while len(await database.rows(select(REQUEST_TABLE.c.request_id))) > 1:
                await asyncio.sleep(0.02)
        page = await one.archive.query(RequestQuery())
        assert ids(page.requests) == ids([kept(100)])


async def test_usage_and_audit_rows_are_kept_for_their_own_days(url: str) -> None:
    group = UsageGroup("a", "m", "chat_completions")
    async with archived(url, ArchiveLimits(request_days=1.0, usage_days=20.0)) as one:
        sweep, database = one.archive._sweep, one.archive._database
        assert database is not None
        await until(lambda: sweep._at > 0)
        times = [BASE - days * DAY for days in (21, 19, 2)]
        hours = [int(time // 3600) for time in times]
        await database.write_usage(
            1, [HourlyUsage(0, hour, group, UsageFigures(output_tokens=1.0)) for hour in hours]
        )
        audit = [AuditRow(time=time, actor="a", address="b", action="c") for time in times]
        assert not await database.write_audit([audit_values(row) for row in audit])
        sweep._at = 0.0
        await until(lambda: sweep._at > 0)
        assert [row.hour for row in await database.rows(USAGE_TABLE.select())] == hours[1:]
        assert await one.archive.audit_rows(10) == tuple(audit[:0:-1])
