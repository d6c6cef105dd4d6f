"""Audit entries wait in order, up to a limit, and leave once they are stored or refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from observability.admin_api import AuditRow
from service.store import audit_writer
from service.store.archive_database import ArchiveDatabase
from service.store.audit_writer import AuditWriter
from service.store.place import store_place
from service.store.usage_query import audit_statement
from tests.service.store.stored import opened


def entry(number: int) -> AuditRow:
    return AuditRow(time=float(number), actor="ann", address="::1", action=f"action {number}")


async def test_entries_are_written_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    async with opened(url):
        database = ArchiveDatabase(store_place(url))
        one = AuditWriter()
        one.keep(entry(1))
        one.keep(entry(2))
        assert one.count == 2
        for _ in range(2):
            await one.write(database)
            assert one.count == 0
        rows = await database.rows(audit_statement(10))
        assert [row.action for row in rows] == ["action 2", "action 1"]
        await database.close()


async def test_entries_that_come_during_writes_at_the_same_time_are_written_once(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    async with opened(url):
        database = ArchiveDatabase(store_place(url))
        one = AuditWriter()
        one.keep(entry(1))
        writing = [asyncio.create_task(one.write(database)) for _ in range(2)]
        await asyncio.sleep(0)
        one.keep(entry(2))
        await asyncio.gather(*writing)
        await one.write(database)
        rows = await database.rows(audit_statement(10))
        assert [row.action for row in rows] == ["action 2", "action 1"]
        assert one.count == 0
        await database.close()


def test_an_entry_beyond_the_limit_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_writer, "_MOST_ROWS", 1)
    one = AuditWriter()
    with capture_logs() as lines:
        one.keep(entry(1))
        one.keep(entry(2))
    [line] = lines
    assert (line["event"], line["action"]) == ("an audit row was not stored", "action 2")
    assert one.count == 1
