"""Requests are deleted batch by batch until none is left to delete."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sqlalchemy import select

from observability.admin_api import RequestQuery
from service.store import retention
from service.store.archive_database import ArchiveDatabase
from service.store.archive_tables import REQUEST_TABLE
from service.store.sweep import ArchiveLimits, Sweep
from tests.service.store.archived import BASE, archived, ids, kept

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
