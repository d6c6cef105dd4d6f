"""The audit trail."""

from __future__ import annotations

import asyncio

from observability.admin_api import AuditRow
from service.admin.audit import MOST_ROWS, AuditTrail
from service.telemetry.line_budget import LINES_AT_ONCE


class Store:
    def __init__(self) -> None:
        self.kept: list[AuditRow] = []
        self.is_away = False

    def keep_audit(self, row: AuditRow) -> None:
        self.kept.append(row)

    async def audit_rows(self, limit: int) -> tuple[AuditRow, ...] | None:
        return None if self.is_away else tuple(self.kept[::-1][:limit])


def actions(trail: AuditTrail, limit: int = 10) -> list[str]:
    return [row.action for row in asyncio.run(trail.rows(limit)).rows]


def test_rows_go_to_the_store_and_come_from_it_newest_first() -> None:
    store = Store()
    trail = AuditTrail(store)
    trail.add("ann", "127.0.0.1", "drain", before="accepting", after="draining")
    trail.add("ann", "127.0.0.1", "resume")
    assert [row.action for row in store.kept] == ["drain", "resume"]
    assert actions(trail) == ["resume", "drain"]
    assert actions(trail, 1) == ["resume"]


def test_without_the_store_the_worker_remembers_its_own_rows() -> None:
    store = Store()
    store.is_away = True
    for trail in (AuditTrail(), AuditTrail(store)):
        trail.add("ann", "127.0.0.1", "drain")
        assert actions(trail) == ["drain"]


def test_the_answer_says_where_the_rows_are_from() -> None:
    store = Store()
    trail = AuditTrail(store)
    trail.add("ann", "127.0.0.1", "drain")
    assert asyncio.run(trail.rows(10)).source == "store"
    store.is_away = True
    assert asyncio.run(trail.rows(10)).source == "memory"


def test_memory_and_texts_are_bounded() -> None:
    trail = AuditTrail()
    for _ in range(MOST_ROWS + 5):
        trail.add("ann", "127.0.0.1", "x" * 1000)
    rows = asyncio.run(trail.rows(10_000)).rows
    assert len(rows) == MOST_ROWS
    assert len(rows[0].action) == 256


def test_refused_tries_are_bounded() -> None:
    trail = AuditTrail()
    for _ in range(LINES_AT_ONCE * 3):
        trail.refuse("unknown", "10.0.0.7", "POST /x", "key")
    rows = asyncio.run(trail.rows(1000)).rows
    assert LINES_AT_ONCE <= len(rows) < LINES_AT_ONCE * 2
    assert rows[0].result == "refused: key"


def test_texts_have_no_control_characters() -> None:
    trail = AuditTrail()
    row = trail.add("unknown", "10.0.0.7", "POST /\0\r\n\x1b[2J\x85x", after="1 → 2")
    assert row.action == "POST /����[2J�x"
    assert row.after == "1 → 2"
