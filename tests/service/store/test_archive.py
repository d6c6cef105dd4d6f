"""Requests, usage and audit reach the database once each, whatever happens on the way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.testing import capture_logs

from observability.admin_api import AuditRow, KeptRequest, RequestQuery
from observability.usage_table import UsageFigures, UsageGroup
from service.errors import StoreUnavailableError
from service.records.records import Records
from service.records.row import row_of
from service.store import archive
from service.store.archive import ArchiveSources, RequestArchive
from service.store.archive_database import ArchiveDatabase, QueryTooLongError
from service.store.place import store_place
from service.store.request_query import ArchiveQueryError
from service.store.schema import database_url
from service.store.store import ResponseStore
from service.store.sweep import ArchiveLimits
from service.telemetry.requests import Telemetry
from tests.service.running_postgres import Postgres
from tests.service.store.archived import BASE, Archived, archived, ids, kept
from tests.service.store.archived import telemetry as telemetry_of
from tests.service.store.stored import MANY, execute, until

HOUR = 3600.0
NOON = BASE // 86400 * 86400 + 12 * HOUR
ALICE = UsageGroup("alice", "m", "chat_completions")
BOB = UsageGroup("bob", "n", "responses")


async def test_what_is_kept_is_found_by_request_and_by_trace(url: str) -> None:
    wanted = kept(7, error="a reason", finish_reasons=("stop", "length"))
    async with archived(url) as one:
        one.keep(kept(6), wanted, kept(8))
        await one.written()
        assert await one.archive.find(wanted.request_id) == wanted
        assert await one.archive.find(wanted.trace_id) == wanted
        assert await one.archive.find("req_nobody") is None
        assert await one.archive.find("no id; --") is None


async def test_pages_follow_each_other_without_a_gap_in_any_order(url: str) -> None:
    # Some end at the same moment, and some have no first token.
    requests = [kept(number, ended=BASE - number // 3) for number in range(150)]
    async with archived(url) as one:
        one.keep(*requests)
        await one.written()
        records = Records()
        records._rows.extend(row_of(one) for one in requests)
        sorts = ("-received", "ended", "-ended", "-total", "-output_tokens", "prompt_tokens")
        for sort in (*sorts, "ttft", "-ttft"):
            pages: list[KeptRequest] = []
            cursor = None
            while True:
                query = RequestQuery(sort=sort, limit=40, cursor=cursor)
                page = await one.archive.query(query)
                assert page.source == "store"
                pages += page.requests
                cursor = page.cursor
                if cursor is None:
                    break
                assert len(page.requests) == 40
            expected = await records.query(RequestQuery(sort=sort, limit=1000))
            assert ids(pages) == ids(expected.requests), sort
            assert len(pages) == len(requests)


@pytest.mark.parametrize(
    ("fields", "is_found"),
    [
        ({"key": "bob"}, lambda r: r.key == "bob"),
        ({"model": "n", "route": "responses"}, lambda r: r.model == "n"),
        ({"outcome": "length"}, lambda r: r.outcome == "length"),
        ({"outcome": "failed"}, lambda r: r.outcome == "error:engine"),
        ({"outcome": "answered"}, lambda r: r.outcome in ("stop", "length")),
        ({"phase": "queue"}, lambda r: r.phases["queue"] > 0.15),
        ({"min_seconds": 6.0}, lambda r: r.total >= 6.0),
        ({"since": BASE - 10, "until": BASE - 3}, lambda r: BASE - 10 <= r.ended < BASE - 3),
    ],
)
async def test_filters(url: str, fields: dict[str, object], is_found: object) -> None:
    requests = [kept(number) for number in range(60)]
    async with archived(url) as one:
        one.keep(*requests)
        await one.written()
        page = await one.archive.query(RequestQuery(sort="-ended", **fields))  # type: ignore[arg-type]
        expected = [r for r in requests if is_found(r)]  # type: ignore[operator]
        assert 0 < len(expected) < len(requests)
        assert ids(page.requests) == ids(expected)


@pytest.mark.parametrize("name", ["key", "model"])
async def test_other_finds_what_has_no_name(url: str, name: str) -> None:
    nameless = kept(1, **{name: None if name == "key" else ""})
    async with archived(url) as one:
        one.keep(nameless, kept(2, key="bob"))
        await one.written()
        for sort in ("-ended", "-total"):
            page = await one.archive.query(RequestQuery(sort=sort, **{name: "other"}))
            assert ids(page.requests) == ids([nameless])


@pytest.mark.parametrize(
    "query",
    [
        RequestQuery(sort="key"),
        RequestQuery(limit=0),
        RequestQuery(limit=1001),
        RequestQuery(outcome="nothing"),
        RequestQuery(key="\0"),
        RequestQuery(model="m" * 300),
        RequestQuery(cursor="kqV0b3RhbMs_8A"),
        RequestQuery(cursor="%%%"),
    ],
)
async def test_a_query_that_cannot_be_answered_is_refused(tmp_path: Path, query: object) -> None:
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        with pytest.raises(ArchiveQueryError):
            await one.archive.query(query)  # type: ignore[arg-type]


async def test_usage_is_by_group_and_hour_or_day(url: str) -> None:
    async with archived(url) as one:
        one.use(NOON, ALICE, prompt_tokens=100, cached_tokens=60, output_tokens=10, seconds=0.5)
        one.use(NOON + 1, ALICE, prompt_tokens=1, errors=1, reasoning_tokens=3)
        one.use(NOON + 2, BOB, output_tokens=7)
        one.use(NOON + HOUR, ALICE, output_tokens=5)
        hours = await one.archive.usage("key", NOON, NOON + 2 * HOUR)
        assert [(row.start, row.group, row.requests, row.output_tokens) for row in hours] == [
            (NOON, "alice", 2, 10),
            (NOON, "bob", 1, 7),
            (NOON + HOUR, "alice", 1, 5),
        ]
        first = hours[0]
        assert (first.errors, first.prompt_tokens, first.cached_tokens) == (1, 101, 60)
        assert (first.reasoning_tokens, first.seconds) == (3, 0.5)
        days = await one.archive.usage("model", NOON, NOON + HOUR, bucket="day")
        midnight = NOON - 12 * HOUR
        found = {(row.start, row.group): row.requests for row in days}
        assert found == {(midnight, "m"): 2, (midnight, "n"): 1}


async def test_usage_is_exact_though_written_twice_and_continued_by_the_next_worker(
    url: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    def descriptor() -> int:
        return os.open(ledger, os.O_RDWR | os.O_CREAT)

    killed = telemetry_of(descriptor())  # never writes anything to the database
    with killed.metrics.ledger:
        killed.usage.count(NOON, ALICE, UsageFigures(output_tokens=10))
        killed.ended_requests.put(row_of(kept(1)))
    for _ in range(2):
        async with archived(url, ledger=descriptor()) as one:
            one.use(NOON, ALICE, output_tokens=1)
            await one.archive.usage("key", NOON, NOON + HOUR)
            one.use(NOON, ALICE, output_tokens=1)
            one.archive._usage._stored.clear()  # as if the answer had been lost
            [row] = await one.archive.usage("key", NOON, NOON + HOUR)
    assert (row.requests, row.output_tokens) == (5, 14)
    async with archived(url) as other:  # another server's, with its own ledger
        other.use(NOON, ALICE, output_tokens=100)
        [row] = await other.archive.usage("key", NOON, NOON + HOUR)
        assert (row.requests, row.output_tokens) == (6, 114)
        assert await other.archive.find(kept(1).request_id) == kept(1)


async def test_what_was_used_since_the_last_write_is_stored_at_the_end(url: str) -> None:
    async with archived(url) as one:
        assert await one.archive.usage("key", NOON, NOON + HOUR) == []  # the next is not due yet
        one.use(NOON, ALICE, output_tokens=7)
    async with archived(url) as other:
        [row] = await other.archive.usage("key", NOON, NOON + HOUR)
    assert (row.group, row.output_tokens) == ("alice", 7)


async def test_all_requests_are_stored_at_the_end_though_usage_is_due(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.usage_writer._SECONDS", 0.0)
    requests = [kept(number) for number in range(300)]  # several batches
    async with archived(url) as one:
        one.keep(*requests)
    async with archived(url) as other:
        page = await other.archive.query(RequestQuery(sort="-ended", limit=len(requests) + 1))
    assert ids(page.requests) == ids(requests)


@pytest.mark.debian
async def test_usage_that_a_failover_lost_is_written_again(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE failed_over")
    url = postgres.url.replace("/postgres", "/failed_over")
    async with archived(url) as one:
        one.use(NOON, ALICE, output_tokens=7)
        assert await one.archive.usage("key", NOON, NOON + HOUR)
        await execute(url, "DELETE FROM quire_usage")
        assert not await one.archive.usage("key", NOON, NOON + HOUR)  # by the same server
        postgres.stop()
        postgres.start()
        [row] = await one.archive.usage("key", NOON, NOON + HOUR)
        assert (row.requests, row.output_tokens) == (1, 7)


async def test_more_keys_than_the_ledger_has_rows_for_are_stored(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.telemetry.requests.USAGE_ROWS", 8)
    monkeypatch.setattr("service.store.archive._WRITE_SECONDS", 0.01)
    table = Telemetry(["m"], version="1", keys_change=True, keeps_requests=True)
    one = Archived(url, table, ArchiveLimits())
    one.responses.open()
    one.archive.open()
    for _ in range(2):
        for number in range(20):
            one.use(NOON, UsageGroup(f"key{number}", "m", "chat_completions"), output_tokens=1)
            await until(lambda: not table.usage.is_crowded)
    rows = await one.archive.usage("key", NOON, NOON + HOUR)
    assert {row.group: row.output_tokens for row in rows} == {f"key{n}": 2 for n in range(20)}
    await one.archive.close()
    await one.responses.close()


async def test_a_record_that_is_written_again_is_stored_once(url: str) -> None:
    async with archived(url) as one:
        one.keep(kept(1), kept(1))
        await one.written()
        page = await one.archive.query(RequestQuery())
        assert ids(page.requests) == [kept(1).request_id]


async def test_audit_rows_are_kept_in_order(url: str) -> None:
    rows = [
        AuditRow(time=BASE + n, actor="ann", address="::1", action="drain", after=str(n))
        for n in range(3)
    ]
    async with archived(url) as one:
        for row in rows:
            one.archive.keep_audit(row)
        assert await one.archive.audit_rows(10) == tuple(rows[::-1])
        assert await one.archive.audit_rows(1) == (rows[2],)


async def test_an_audit_row_that_the_database_refuses_stops_no_other_row(url: str) -> None:
    """PostgreSQL takes no NUL. SQLite takes everything."""
    actions = ["drain", "POST /\0", "resume"]
    async with archived(url) as one:
        for number, action in enumerate(actions):
            row = AuditRow(time=BASE + number, actor="ann", address="::1", action=action)
            one.archive.keep_audit(row)
        one.keep(kept(1))
        await one.written()
        rows = await one.archive.audit_rows(10)
        assert rows is not None
        assert {row.action for row in rows} >= {"drain", "resume"}
        assert await one.archive.find(kept(1).request_id) == kept(1)


async def test_what_a_database_refuses_is_dropped_and_counted_and_the_rest_is_stored(
    url: str,
) -> None:
    # PostgreSQL takes no NUL; SQLite takes everything, so that there the entry itself is broken.
    bad = kept(2, outcome="\0" if url.startswith("postgresql") else None)
    async with archived(url) as one:
        one.keep(kept(1), bad, kept(3))
        await one.written()
        page = await one.archive.query(RequestQuery(sort="-ended"))
        assert ids(page.requests) == ids([kept(1), kept(3)])
        await until(lambda: one.dropped == 1)


async def test_what_is_pending_is_written_for_a_reader_elsewhere(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = AuditRow(time=BASE, actor="ann", address="::1", action="drain")
    async with archived(url) as one:
        await asyncio.sleep(0.1)  # the writer has its pause
        one.keep(kept(1))
        one.use(NOON, ALICE, output_tokens=5)
        one.archive.keep_audit(row)
        assert await one.archive.write_now(usage=True)
        async with archived(url) as other:
            assert await other.archive.find(kept(1).request_id) == kept(1)
            [used] = await other.archive.usage("key", NOON, NOON + HOUR)
            assert used.output_tokens == 5
            assert await other.archive.audit_rows(1) == (row,)

        async def fail(*_: object) -> None:
            raise OSError

        monkeypatch.setattr(ArchiveDatabase, "write_usage", fail)
        one.use(NOON, ALICE, output_tokens=5)
        assert not await one.archive.write_now(usage=True)


async def test_without_a_database_everything_is_unavailable() -> None:
    telemetry = telemetry_of()
    sources = ArchiveSources(telemetry.ended_requests, telemetry.usage)
    none = RequestArchive(None, ArchiveLimits(), ResponseStore(None, MANY), sources)
    none.open()
    none.keep_audit(AuditRow(time=1.0, actor="a", address="b", action="c"))
    with pytest.raises(StoreUnavailableError, match="--store-url"):
        await none.query(RequestQuery())
    assert await none.audit_rows(10) is None
    await none.close()


async def test_while_the_database_is_away_records_are_dropped_and_counted_and_usage_is_not(
    url: str,
) -> None:
    telemetry = telemetry_of()
    most = 12_000
    for number in range(most):
        with telemetry.metrics.ledger:
            telemetry.usage.count(NOON, ALICE, UsageFigures(output_tokens=1))
            telemetry.ended_requests.put(row_of(kept(number)))
    one = Archived(url, telemetry, ArchiveLimits())
    dropped = one.dropped
    assert 0 < dropped < most
    one.responses.open()
    one.archive.open()
    await one.written()
    [row] = await one.archive.usage("key", NOON, NOON + HOUR)
    assert (row.requests, row.output_tokens) == (most, most)
    stored, cursor = 0, None
    while True:
        page = await one.archive.query(RequestQuery(sort="ended", limit=1000, cursor=cursor))
        stored, cursor = stored + len(page.requests), page.cursor
        if cursor is None:
            break
    assert stored + dropped == most
    assert one.dropped == dropped
    await one.archive.close()
    await one.responses.close()


async def test_few_queries_run_at_a_time_and_others_are_told_when_they_wait_too_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = most = 0
    go = asyncio.Event()
    rows = ArchiveDatabase.rows

    async def slow(self: ArchiveDatabase, statement: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await go.wait()
            return await rows(self, statement)
        finally:
            running -= 1

    async with archived(url) as one:
        one.keep(kept(1))
        await one.written()
        monkeypatch.setattr(ArchiveDatabase, "rows", slow)
        asked = [asyncio.create_task(one.archive.query(RequestQuery())) for _ in range(30)]
        await until(lambda: running == archive._MOST_QUERIES)
        monkeypatch.setattr(archive, "_ANSWER_SECONDS", 0.1)
        with pytest.raises(StoreUnavailableError, match="busy"):
            await one.archive.find(kept(1).request_id)
        one.keep(kept(2))
        await one.written()  # the writer does not wait for readers
        go.set()
        pages = await asyncio.gather(*asked)
        assert all(page.requests for page in pages)
        assert most == archive._MOST_QUERIES


async def test_only_a_query_that_was_slow_itself_is_to_be_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Exception = TimeoutError()  # as of a connection that is not accepted

    async def fail(self: ArchiveDatabase, statement: Any) -> Any:
        raise error

    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        monkeypatch.setattr(ArchiveDatabase, "rows", fail)
        with pytest.raises(StoreUnavailableError, match="retry"):
            await one.archive.query(RequestQuery())
        error = QueryTooLongError()
        with pytest.raises(ArchiveQueryError, match="choose a shorter period"):
            await one.archive.query(RequestQuery())


@pytest.mark.debian
async def test_a_database_that_does_not_answer_is_not_waited_for_long(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when pending usage is written, nor when it is read; the drivers' own limits are 20 s
    for each. What is pending stays so."""
    await execute(postgres.url, "CREATE DATABASE locked")
    url = postgres.url.replace("/postgres", "/locked")
    engine = create_async_engine(database_url(store_place(url)))
    async with archived(url) as one:
        one.use(NOON, ALICE, requests=1)
        await one.archive.usage("key", NOON, NOON + HOUR)
        with monkeypatch.context() as patch:
            patch.setattr(archive, "_FLUSH_SECONDS", 0.2)
            patch.setattr(archive, "_ANSWER_SECONDS", 0.2)
            async with engine.begin() as locking, asyncio.timeout(15):
                await locking.execute(text("LOCK TABLE quire_usage IN ACCESS EXCLUSIVE MODE"))
                one.use(NOON, ALICE, requests=1)
                assert not await one.archive.write_now(usage=True)
                with pytest.raises(StoreUnavailableError):
                    await one.archive.usage("key", NOON, NOON + HOUR)
        [row] = await one.archive.usage("key", NOON, NOON + HOUR)
        assert row.requests == 2
    await engine.dispose()


async def test_it_says_when_nothing_can_be_stored_and_when_it_can_again(tmp_path: Path) -> None:
    heard: list[bool] = []
    with pytest.MonkeyPatch.context() as patch, capture_logs() as lines:
        patch.setattr(archive, "_RETRY_SECONDS", 0.02)
        url = f"sqlite:///{tmp_path}/store.sqlite3"
        async with archived(url, on_away=heard.append) as one:
            await until(lambda: heard[-1:] == [False])
            async with _missing(url, "quire_requests"):
                one.keep(kept(1))
                await until(lambda: heard[-1])
                assert one.archive.is_away
            await until(lambda: not heard[-1])
            assert not one.archive.is_away
    [line] = _errors(lines)
    assert line["error"] == "no such table: quire_requests (OperationalError)"


async def test_a_reader_that_needs_what_is_pending_says_why_it_cannot_read(tmp_path: Path) -> None:
    """While the archive writes nothing by itself, and once it has noticed."""
    wanted = r"would be incomplete: no such table: quire_usage \(OperationalError\)\. Restore"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "_RETRY_SECONDS", 0.02)
        async with archived(url := f"sqlite:///{tmp_path}/store.sqlite3") as one:
            await one.archive.usage("key", NOON, NOON + HOUR)  # not due again for ten seconds
            async with _missing(url, "quire_usage"):
                one.use(NOON, ALICE, requests=1)
                with pytest.raises(StoreUnavailableError, match=wanted):
                    await one.archive.usage("key", NOON, NOON + HOUR)
                one.archive._usage._next = 0.0
                await until(lambda: one.archive.is_away and not one.archive.available)
                with pytest.raises(StoreUnavailableError, match=wanted):
                    await one.archive.usage("key", NOON, NOON + HOUR)


async def test_the_end_counts_what_was_not_stored(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with archived(url := f"sqlite:///{tmp_path}/store.sqlite3") as one:
            await execute(url, "ALTER TABLE quire_requests RENAME TO elsewhere")
            one.keep(kept(1), kept(2), kept(3))
            one.use(NOON, ALICE, requests=2)
            one.use(NOON + HOUR, ALICE, requests=1)
            await until(lambda: one.archive.is_away)
    line = {"requests": 3, "usage_of_keys": 1, "audit_entries": 0, "log_level": "error"}
    error = "no such table: quire_requests (OperationalError)"
    assert _unstored(lines) == [{"event": _UNSTORED, **line, "error": error}]


async def test_the_end_says_what_a_database_that_was_never_reached_lacks(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    one = Archived(f"sqlite:///{tmp_path}/file/store.sqlite3", telemetry_of(), ArchiveLimits())
    with capture_logs() as lines:
        one.responses.open()
        one.archive.open()
        one.archive.keep_audit(AuditRow(time=BASE, actor="ann", address="::1", action="drain"))
        await one.archive.close()
        await one.responses.close()
    [line] = _unstored(lines)
    assert (line["audit_entries"], line["error"]) == (1, "the database could not be reached")


async def test_the_end_tries_once_more_and_has_nothing_to_say(tmp_path: Path) -> None:
    """The database may have come back since the last attempt."""
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    with capture_logs() as lines:
        async with archived(url) as one, _missing(url, "quire_requests"):
            one.keep(kept(1))
            await until(lambda: one.archive.is_away)
        async with archived(url) as other:
            assert await other.archive.find(kept(1).request_id) == kept(1)
    assert _unstored(lines) == []


async def test_the_log_says_that_the_file_was_replaced(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    with capture_logs() as lines:
        async with archived(f"sqlite:///{file}") as one:
            one.keep(kept(1))
            await one.written()
            file.unlink()
            one.keep(kept(2))
            await until(lambda: _errors(lines) != [])
            assert not file.exists()
    [line] = _errors(lines)
    assert "was deleted or replaced" in line["error"]


def _errors(lines: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    said = "requests and usage cannot be stored"
    return [line for line in lines if line["event"] == said]


_UNSTORED = "requests, usage or audit entries were not stored; if the server ends, they are lost"


def _unstored(lines: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == _UNSTORED]


@asynccontextmanager
async def _missing(url: str, table: str) -> AsyncIterator[None]:
    await execute(url, f"ALTER TABLE {table} RENAME TO elsewhere")
    yield
    await execute(url, f"ALTER TABLE elsewhere RENAME TO {table}")
