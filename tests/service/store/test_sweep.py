"""Requests are deleted batch by batch until none is left to delete."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sqlalchemy import select

from observability.admin_api import AuditRow, RequestQuery
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup
from service.store import retention
from service.store.archive_database import ArchiveDatabase, audit_values
from service.store.archive_tables import REQUEST_TABLE, USAGE_TABLE
from service.store.sweep import ArchiveLimits, Sweep
from tests.service.store.archived import BASE, archived, ids, kept
from tests.service.store.stored import until

DAY = 86_400.0


class Counting:
    """A database with so many batches to delete, that notes what it is asked."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.asked: list[str] = []

    async def delete_requests(self, **_: Any) -> bool:
        self.asked.append("requests")
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
