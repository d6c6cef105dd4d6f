"""Usage is written when it has changed, or the database may have lost it, and rows that are stored
are released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structlog.testing import capture_logs

from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup, UsageTable
from service.store.usage_writer import UsageWriter


class Database:
    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.server = "first"

    async def instance(self) -> str:
        return self.server

    async def write_usage(self, boot: int, usage: Sequence[HourlyUsage]) -> None:
        self.written.append([one.group.key for one in usage])


def count(table: UsageTable, key: str) -> None:
    with table._ledger:
        table.count(360_000, UsageGroup(key, "m", "chat"), UsageFigures())


def usage_table() -> UsageTable:
    layout = LedgerLayout(["m"], metrics=[], usage_rows=8, key_names=20)
    return UsageTable(WorkerLedger(layout), ("other",), ("m", "other"), ("chat", "none"))


async def test_after_a_failover_all_is_written_again_once() -> None:
    table = usage_table()
    writer, database = UsageWriter(table), Database()
    written: Any = database
    count(table, "a")
    await writer.write(written)
    count(table, "b")
    assert writer.keys_pending == 1
    await writer.write(written)
    assert writer.keys_pending == 0
    database.server = "second"
    for _ in range(2):
        await writer.write(written)
    assert database.written == [["a"], ["b"], ["a", "b"]]


async def test_what_has_changed_is_written_and_an_overflow_is_logged_once() -> None:
    table = usage_table()
    writer, database = UsageWriter(table), Database()
    written: Any = database
    with capture_logs() as lines:
        count(table, "a")
        count(table, "b")
        assert writer.is_due
        await writer.write(written)
        assert not writer.is_due
        count(table, "b")
        await writer.write(written)
        await writer.write(written)
        assert database.written == [["a", "b"], ["b"]]
        for key in "cdefg":
            assert not writer.is_urgent
            count(table, key)
        assert writer.is_urgent
        assert not lines
        for _ in range(2):
            for key in "hijklmnop":
                count(table, key)
            await writer.write(written)
            assert not writer.is_urgent
    assert [line["log_level"] for line in lines] == ["warning"]
