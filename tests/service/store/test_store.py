"""Stored responses, on SQLite and on PostgreSQL: owned, bounded, expiring, written later."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
import structlog
from sqlalchemy import Connection, event

from observability.logging import configure
from service.errors import StoreUnavailableError
from service.store.condition import StoreWatch
from service.store.database import Database
from service.store.place import StorePlace, store_place
from service.store.record import StoredResponse
from service.store.store import ResponseStore, StoreLimits
from tests.service.running_postgres import Postgres
from tests.service.store.stored import MANY, execute, opened, record, rows_of, until

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.store._RETRY_SECONDS", 0.05)


async def test_what_was_saved_can_be_read_at_once_and_by_the_next_process(url: str) -> None:
    saved = record("resp_a")
    async with opened(url) as store:
        store.save(saved)
        assert await store.get("resp_a", "me") == saved
    async with opened(url) as again:
        assert await again.get("resp_a", "me") == saved
        assert await again.delete("resp_a", "me")


async def test_a_stored_response_is_in_the_database_by_then(url: str) -> None:
    async with opened(url) as store:
        await asyncio.gather(*(store.put(record(f"resp_p{number}")) for number in range(100)))
        for number in (0, 99):
            assert await rows_of(store, f"resp_p{number}") == 1
            assert await store.delete(f"resp_p{number}", "me")


async def test_the_most_detailed_log_says_nothing_of_what_is_stored(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner is a digest of its key."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    written = io.BytesIO()
    writer = configure(level="debug", stream=written)
    try:
        async with opened(url) as store:
            await store.put(record("resp_q", "digest-of-a-key"))
            assert await rows_of(store, "resp_q")
            assert await store.delete("resp_q", "digest-of-a-key")
    finally:
        writer.close()
        structlog.reset_defaults()
    assert b"response store opened" in written.getvalue()
    assert b"digest-of-a-key" not in written.getvalue()


async def test_the_first_who_ask_wait_for_the_database_to_be_opened(url: str) -> None:
    store = ResponseStore(store_place(url), MANY)
    store.open()
    assert not store.available
    await store.put(record("resp_first"))
    assert await store.delete("resp_first", "me")
    await store.close()


async def test_only_its_owner_sees_or_deletes_it(url: str) -> None:
    async with opened(url) as store:
        store.save(record("resp_o"))
        assert await store.get("resp_o", "you") is None
        assert not await store.delete("resp_o", "you")
        assert await store.get("resp_o", "me") is not None
        assert await store.delete("resp_o", "me")
        assert await store.get("resp_o", "me") is None
        assert not await store.delete("resp_o", "me")


async def test_a_response_in_progress_can_be_deleted_once(url: str) -> None:
    async with opened(url) as store:
        await store.put(msgspec.structs.replace(record("resp_o"), status="in_progress"))
        assert await store.delete("resp_o", "me")
        await until(lambda: not store._gone)
        assert not await store.delete("resp_o", "me")


async def test_deleting_while_the_end_is_written_does_not_make_the_store_unavailable(
    url: str,
) -> None:
    """As clients do that poll until a response has ended: they learn of the end, and delete it,
    while it is being written."""
    async with opened(url) as store, opened(url) as other:
        for number in range(40):
            name = f"resp_d{number}"
            begun = msgspec.structs.replace(record(name), status="in_progress")
            await store.put(begun)
            ended = asyncio.create_task(store.put(updated(record(name, text="end"))))
            for _ in range(number % 8):
                await asyncio.sleep(0)
            deleting = other if number % 2 else store
            assert await deleting.delete(name, "me")
            await ended
            assert store.available
            assert await rows_of(store, name) == 0


async def test_what_another_replica_deletes_while_it_runs_is_stopped_and_stays_away(
    url: str,
) -> None:
    limits = StoreLimits(responses=1000, bytes=1 << 30, ttl=1000, sweep_seconds=0.02)
    deleted: list[str] = []
    store = ResponseStore(store_place(url), limits, on_deleted=deleted.append)
    store.open()
    async with opened(url) as other:
        for name in ("resp_e1", "resp_e2"):
            await store.put(msgspec.structs.replace(record(name), status="in_progress"))
        assert await other.delete("resp_e1", "me")
        await until(lambda: bool(deleted))
        await store.put(updated(record("resp_e1", text="end")))
        ended = record("resp_e2", text="end")
        await store.put(updated(ended))
        assert await other.get("resp_e1", "me") is None
        assert await other.get("resp_e2", "me") == ended
        await other.delete("resp_e2", "me")
    await store.close()
    assert deleted == ["resp_e1"]


async def test_what_the_database_has_lost_while_it_runs_is_stored_again(url: str) -> None:
    limits = StoreLimits(responses=1000, bytes=1 << 30, ttl=1000, sweep_seconds=0.02)
    deleted: list[str] = []
    store = ResponseStore(store_place(url), limits, on_deleted=deleted.append)
    store.open()
    begun = msgspec.structs.replace(record("resp_v"), status="in_progress")
    await store.put(begun)
    await execute(url, "DELETE FROM quire_responses")  # as a failover to an older copy does
    while not await rows_of(store, "resp_v"):
        await asyncio.sleep(0.005)
    await execute(url, "DELETE FROM quire_responses")
    ended = record("resp_v", text="end")
    await store.put(updated(ended))
    async with opened(url) as other:
        assert await other.get("resp_v", "me") == ended
    await store.close()
    assert deleted == []


async def test_what_could_not_be_deleted_stays_as_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store:
        assert store._database is not None
        begun = msgspec.structs.replace(record("resp_s"), status="in_progress")
        await store.put(begun)
        with monkeypatch.context() as patch:

            async def hangs(*_: object) -> bool:
                raise TimeoutError

            patch.setattr(store._database, "delete", hangs)
            with pytest.raises(StoreUnavailableError):
                await store.delete("resp_s", "me")
        assert "resp_s" in store._running.ids
        ended = record("resp_s", text="end")
        await store.put(updated(ended))
        assert await store.get("resp_s", "me") == ended
        assert not store._running.ids


async def test_what_was_too_slow_to_be_stored_is_not_found_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.store._WRITE_SECONDS", 0.1)
    async with heard(url) as (store, found), opened(url) as other:
        assert store._database is not None
        may_end = asyncio.Event()
        write = store._database.write

        async def slow(*arguments: Any, **options: Any) -> int:
            size = await write(arguments[0], (), **options)
            await may_end.wait()
            return size

        with monkeypatch.context() as patch:
            patch.setattr(store._database, "write", slow)
            with pytest.raises(StoreUnavailableError, match="too slow"):
                await store.put(record("resp_w1"))
            assert found.now == {"unreadable": False, "unwritable": True}
            with pytest.raises(StoreUnavailableError, match="too slow"):  # at once
                store.require()
            may_end.set()
            await until(lambda: store.available)
        assert found.now == {"unreadable": False, "unwritable": False}
        assert await store.get("resp_w1", "me") is None
        assert await other.get("resp_w1", "me") is None
        await store.put(record("resp_w2"))


async def test_an_update_that_was_too_slow_takes_no_newer_one_along() -> None:
    store = ResponseStore(store_place(""), MANY)
    older, newer = updated(record("resp_v")), updated(record("resp_v", text="end"))
    for each in (older, newer):
        assert store.save(each)
    store._drop(older)
    assert await store.get("resp_v", "me") is newer


async def test_a_slow_store_gets_time_to_write_the_rest_when_it_closes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.store._WRITE_SECONDS", 0.1)
    async with heard(url) as (store, found), opened(url) as other:
        assert store._database is not None
        may_end = asyncio.Event()
        write = store._database.write

        async def slow(*arguments: Any, **options: Any) -> int:
            await may_end.wait()
            return await write(*arguments, **options)

        monkeypatch.setattr(store._database, "write", slow)
        with pytest.raises(StoreUnavailableError, match="too slow"):
            await store.put(record("resp_c1"))
        store.save(updated(record("resp_c2")))
        closing = asyncio.create_task(store.close())
        await until(lambda: store._closing)
        may_end.set()
        await closing
        assert await other.get("resp_c2", "me") is not None
    assert found.unstored == 0


async def test_who_waits_for_a_write_learns_at_once_that_the_store_closes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.store._CLOSE_SECONDS", 0.05)
    monkeypatch.setattr("service.store.store._WRITE_SECONDS", 600)
    async with heard(url) as (store, _):
        assert store._database is not None
        writing = asyncio.Event()

        async def hangs(*_: Any, **__: Any) -> None:
            writing.set()
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(store._database, "write", hangs)
        putting = asyncio.create_task(store.put(record("resp_a")))
        await writing.wait()
        await store.close()
        with pytest.raises(StoreUnavailableError, match="unavailable"):
            await putting


async def test_one_failure_does_not_make_the_store_unwritable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a connection that has broken."""
    async with heard(url) as (store, found):
        assert store._database is not None
        await store.put(record("resp_b0"))
        write, failures = store._database.write, 1

        async def failing(*arguments: Any, **options: Any) -> int:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ConnectionResetError
            return await write(*arguments, **options)

        monkeypatch.setattr(store._database, "write", failing)
        await store.put(record("resp_b1"))
        assert await rows_of(store, "resp_b1")
        failures = 1
        await store.put(record("resp_b2"))  # another one, later
        assert found.now == {"unreadable": False, "unwritable": False}
        failures = 2
        with pytest.raises(StoreUnavailableError):
            await store.put(record("resp_b3"))
        assert ("unwritable", True) in found.changes


async def test_a_database_whose_table_is_locked_cannot_be_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with heard(url) as (store, found):
        assert store._database is not None
        with monkeypatch.context() as patch:
            find = AsyncMock(side_effect=TimeoutError)
            patch.setattr(store._database, "find", find)
            patch.setattr(store._database, "write", find)
            with pytest.raises(StoreUnavailableError):
                await store.put(record("resp_t"))
            await until(lambda: not store.readable)
            found.changes.clear()
            tried = find.await_count
            await until(lambda: find.await_count > tried + 2)
            assert ("unreadable", False) not in found.changes
        await until(lambda: store.available)


async def test_what_is_deleted_while_it_is_first_written_is_gone_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store, opened(url) as other:
        assert store._database is not None
        writing, may_end = asyncio.Event(), asyncio.Event()
        write = store._database.write

        async def slow(*arguments: Any, **options: Any) -> int:
            size = await write(arguments[0], (), **options)  # too late to leave something out
            writing.set()
            await may_end.wait()
            return size

        monkeypatch.setattr(store._database, "write", slow)
        store.save(record("resp_f"))
        await writing.wait()
        assert await store.delete("resp_f", "me")
        assert await store.get("resp_f", "me") is None
        assert not await store.delete("resp_f", "me")
        may_end.set()
        await until(lambda: not store._gone)
        assert await other.get("resp_f", "me") is None


def updated(newer: StoredResponse) -> StoredResponse:
    return msgspec.structs.replace(newer, is_update=True)


@pytest.mark.parametrize("response_id", ["", "resp_\0", "resp_ü", "r" * 65, "'; --"])
async def test_an_id_that_no_response_has_is_not_found(url: str, response_id: str) -> None:
    async with opened(url) as store:
        assert await store.get(response_id, "me") is None
        assert not await store.delete(response_id, "me")
        assert store.available


async def test_the_newest_state_of_a_response_is_kept(url: str) -> None:
    async with opened(url) as store:
        store.save(record("resp_n", text="first"))
        store.save(record("resp_n", text="second"))
    async with opened(url) as again:
        found = await again.get("resp_n", "me")
        assert found is not None
        assert json.loads(found.body)["output"][0]["text"] == "second"
        assert b"before" in found.context
        assert "Grüße 🚀".encode() in found.input
        await again.delete("resp_n", "me")


async def test_beyond_the_count_the_oldest_go(url: str) -> None:
    limits = StoreLimits(responses=3, bytes=1 << 30, ttl=1000, sweep_seconds=0.02)
    async with opened(url, limits) as store:
        for number in range(8):
            store.save(record(f"resp_c{number}"))
        await until(lambda: not store._pending)
        while await store.get("resp_c4", "me") is not None:
            await asyncio.sleep(0.005)
        left = await names(store, [f"resp_c{number}" for number in range(8)], "me")
        assert left == ["resp_c5", "resp_c6", "resp_c7"]


def test_many_new_responses_and_large_ones_are_swept_early() -> None:
    limits = StoreLimits(responses=640, bytes=6400, ttl=60)
    assert not limits.may_be_exceeded(10, 100)
    assert limits.may_be_exceeded(11, 0)
    assert limits.may_be_exceeded(1, 101)


async def test_beyond_the_bytes_the_oldest_go(url: str) -> None:
    noise = os.urandom(3000).hex()
    limits = StoreLimits(responses=1000, bytes=8000, ttl=1000, sweep_seconds=0.02)
    async with opened(url, limits) as store:
        for number in range(5):
            store.save(record(f"resp_b{number}", text=noise))
        await until(lambda: not store._pending)
        while await store.get("resp_b2", "me") is not None:
            await asyncio.sleep(0.005)
        assert await store.get("resp_b3", "me") is not None
        assert await store.get("resp_b4", "me") is not None


async def test_an_expired_response_is_gone_at_once_and_swept_later(url: str) -> None:
    limits = StoreLimits(responses=1000, bytes=1 << 30, ttl=1, sweep_seconds=0.02)
    async with opened(url, limits) as store:
        store.save(record("resp_x", ttl=0))
        assert await store.get("resp_x", "me") is None
        await until(lambda: not store._pending)
        while await rows_of(store, "resp_x"):
            await asyncio.sleep(0.005)


async def end_lease(url: str, response_id: str) -> None:
    """As it is some time after the death of the replica that worked on it."""
    await execute(
        url,
        f"UPDATE quire_responses SET lease_until = 1 WHERE id = '{response_id}'",  # noqa: S608
    )


async def test_a_lease_expires_by_the_databases_clock_not_by_the_replicas(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = msgspec.structs.replace(record("resp_l", ttl=100_000), status="in_progress")
    async with opened(url) as ours, opened(url) as theirs:
        await ours.put(running)
        real = time.time
        for skew in (-3600, 0, 3600):
            monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
            found = await theirs.get("resp_l", "me")
            assert found is not None
            assert not found.abandoned
        assert ours._database is not None
        await end_lease(url, "resp_l")
        found = await theirs.get("resp_l", "me")
        assert found is not None
        assert found.abandoned
        await ours._sweep()  # the replica that works on it renews its lease with each sweep
        found = await theirs.get("resp_l", "me")
        assert found is not None
        assert not found.abandoned
        assert await ours.delete("resp_l", "me")


async def test_beyond_the_limit_the_owner_with_the_most_loses_first(url: str) -> None:
    limits = StoreLimits(responses=6, bytes=1 << 30, ttl=1000, sweep_seconds=1000)
    async with opened(url, limits) as store:
        await store.put(at(1, record("resp_old", "few")))
        for number in range(20):
            await store.put(at(number + 2, record(f"resp_m{number}", "many")))
        await store.put(at(50, record("resp_new", "few")))
        await store.put(at(51, record("resp_other", "one")))
        await store._sweep()
        left = await names(store, [f"resp_m{number}" for number in range(20)], "many")
        assert left == ["resp_m17", "resp_m18", "resp_m19"]
        assert await names(store, ["resp_old", "resp_new"], "few") == ["resp_old", "resp_new"]
        assert await names(store, ["resp_other"], "one") == ["resp_other"]
        for response_id, owner in [("resp_old", "few"), ("resp_new", "few"), ("resp_other", "one")]:
            await store.delete(response_id, owner)
        for response_id in left:
            await store.delete(response_id, "many")


async def test_bytes_too_are_taken_from_the_owner_that_has_most(url: str) -> None:
    limits = StoreLimits(responses=1000, bytes=20_000, ttl=1000, sweep_seconds=1000)
    noise = [os.urandom(3000).hex() for _ in range(6)]
    async with opened(url, limits) as store:
        await store.put(at(1, record("resp_small", "few")))
        for number, text in enumerate(noise):
            await store.put(at(number + 2, record(f"resp_l{number}", "many", text=text)))
        await store._sweep()
        assert await names(store, ["resp_small"], "few") == ["resp_small"]
        left = await names(store, [f"resp_l{number}" for number in range(6)], "many")
        assert left == [f"resp_l{number}" for number in range(6)][-len(left) :]
        assert 4 <= len(left) < 6
        await store.delete("resp_small", "few")
        for response_id in left:
            await store.delete(response_id, "many")


def at(second: int, kept: StoredResponse) -> StoredResponse:
    return msgspec.structs.replace(kept, created_at=second)


async def names(store: ResponseStore, ids: list[str], owner: str) -> list[str]:
    """Those of them that the database still has."""
    return [each for each in ids if await store.get(each, owner) is not None]


async def test_a_store_that_is_away_is_said_to_be_and_comes_back(tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("no folder")
    store = ResponseStore(store_place(f"sqlite:///{blocker}/store.sqlite3"), MANY)
    store.open()
    await until(lambda: store._database is not None)
    store.save(record("resp_a"))  # dropped, not waited for
    with pytest.raises(StoreUnavailableError):
        await store.get("resp_a", "me")
    with pytest.raises(StoreUnavailableError):
        store.require()
    blocker.unlink()
    await until(lambda: store.available)
    store.require()
    await store.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite:///{folder}/file/store.sqlite3", "FileExistsError: [Errno 17]"),
        ("postgresql://me:secret@127.0.0.1:{port}/x", "Connect call failed"),
        ("sqlite://host/file", "ArgumentError"),
    ],
)
async def test_a_store_that_was_never_there_is_logged_once_and_why(
    url: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as closed, structlog.testing.capture_logs() as lines:
        closed.bind(("127.0.0.1", 0))
        place = store_place(url.format(folder=tmp_path, port=closed.getsockname()[1]))
        store = ResponseStore(place, MANY)
        tries = 0
        connect = store._connect

        async def counted() -> None:
            nonlocal tries
            tries += 1
            await connect()

        monkeypatch.setattr(store, "_connect", counted)
        store.open()
        await until(lambda: tries > 3)
        await store.close()
    (line,) = lines
    assert line["log_level"] == "error"
    assert reason in line["error"]
    assert "secret" not in line["error"]


async def test_a_database_that_cannot_even_be_named_is_away() -> None:
    store = ResponseStore(store_place("sqlite://host/file"), MANY)  # SQLite knows no hosts
    store.open()
    with pytest.raises(StoreUnavailableError):
        await store.put(record("resp_a"))
    await store.close()


async def test_waiting_for_the_store_to_load_ends_when_it_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def loads_for_ever(_place: StorePlace) -> Database:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("service.store.store._load_database", loads_for_ever)
    store = ResponseStore(store_place(""), MANY)
    store.open()
    waiting = asyncio.create_task(store.put(record("resp_a")))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(waiting, 5)


async def test_only_the_first_requests_wait_for_a_database_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.store.store._FIRST_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        store = ResponseStore(store_place(f"postgresql://q@127.0.0.1:{port}/quire"), MANY)
        store.open()
        await store.attempted()
        waiting = asyncio.ensure_future(store.attempted())
        await asyncio.sleep(0)
        assert waiting.done()
        await store.close()


async def test_without_a_store_nothing_is_kept_and_nothing_is_found() -> None:
    store = ResponseStore(None, MANY)
    store.open()
    store.save(record("resp_a"))
    with pytest.raises(StoreUnavailableError):
        await store.put(record("resp_a"))
    assert await store.get("resp_a", "me") is None
    assert not await store.delete("resp_a", "me")
    await store.close()


async def test_a_table_that_is_gone_ends_the_store_until_it_is_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    async with opened(url) as store:
        raw = sqlite3.connect(tmp_path / "store.sqlite3", check_same_thread=False, timeout=60)

        async def rename(old: str, new: str) -> None:
            # In a thread: the store needs the event loop to end a transaction that holds the file.
            await asyncio.to_thread(raw.execute, f"ALTER TABLE {old} RENAME TO {new}")

        await rename("quire_responses", "elsewhere")
        store.save(record("resp_a"))
        with pytest.raises(StoreUnavailableError):
            await store.put(record("resp_b"))
        assert not store.available
        await until(lambda: not store.readable)
        await rename("elsewhere", "quire_responses")
        raw.close()
        await until(lambda: store.available and not store._pending)
        assert await store.get("resp_a", "me") is not None
        assert await store.get("resp_b", "me") is None  # its client never learned that it is stored


class Heard:
    """What a store has reported."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.unstored = 0
        self.watch = StoreWatch(
            unreadable=lambda value: self.changes.append(("unreadable", value)),
            unwritable=lambda value: self.changes.append(("unwritable", value)),
            unstored=self._count,
        )

    def _count(self) -> None:
        self.unstored += 1

    @property
    def now(self) -> dict[str, bool]:
        return dict(self.changes)


@asynccontextmanager
async def heard(url: str) -> AsyncIterator[tuple[ResponseStore, Heard]]:
    found = Heard()
    store = ResponseStore(store_place(url), MANY, watch=found.watch)
    store.open()
    try:
        await until(lambda: store.available)
        yield store, found
    finally:
        await store.close()


async def test_what_a_full_disk_has_can_be_read_until_it_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with heard(f"sqlite:///{tmp_path}/store.sqlite3") as (store, found):
            assert found.now == {"unreadable": False, "unwritable": False}
            await store.put(record("resp_a"))
            failed, free = await fill(store, monkeypatch)
            with pytest.raises(StoreUnavailableError):
                await store.put(record("resp_b", text=os.urandom(100_000).hex()))
            assert not store.available
            with pytest.raises(StoreUnavailableError, match="read-only"):
                store.require()
            for before in range(1, 4):  # it is tried again, and stays as it is
                await until(lambda: failed[0] > before)  # noqa: B023
                assert await store.get("resp_a", "me") is not None
                assert found.now == {"unreadable": False, "unwritable": True}
            await free()
            await until(lambda: store.available)
            assert found.now == {"unreadable": False, "unwritable": False}
            await store.put(record("resp_c", text=os.urandom(100_000).hex()))
            assert await store.get("resp_b", "me") is None
    assert [line["event"] for line in lines if line["log_level"] != "warning"] == [
        "response store opened",
        "cannot write to the response store; stored responses can still be read",
        "response store opened",
    ]


async def test_a_file_that_was_replaced_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "store.sqlite3", tmp_path / "elsewhere"
    with structlog.testing.capture_logs() as lines:
        async with heard(f"sqlite:///{file}") as (store, found):
            await store.put(record("resp_a"))
            file.rename(elsewhere)
            file.touch()
            with pytest.raises(StoreUnavailableError):
                await store.get("resp_a", "me")
            with pytest.raises(StoreUnavailableError):
                await store.put(record("resp_b"))
            await until(lambda: not store.readable)
            assert found.now == {"unreadable": True, "unwritable": True}
            assert file.stat().st_size == 0
            elsewhere.replace(file)
            await until(lambda: store.available)
            assert await store.get("resp_a", "me") is not None
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "response store unavailable"
    assert "was deleted or replaced" in line["error"]


async def test_a_nearly_full_disk_counts_as_full_until_it_takes_what_is_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has room for the trial and for some of the records, but not for all of them."""
    saved = [record(f"resp_n{each}", text=os.urandom(100_000).hex()) for each in range(8)]
    with structlog.testing.capture_logs() as lines:
        async with heard(f"sqlite:///{tmp_path}/store.sqlite3") as (store, found):
            failed, free = await fill(store, monkeypatch, pages_left=100)
            assert all(store.save(each) for each in saved)
            await until(lambda: not store.available)
            found.changes.clear()
            await until(lambda: failed[0] > 4)
            assert ("unwritable", False) not in found.changes
            assert not store.save(record("resp_small"))
            assert 0 < sum([await rows_of(store, each.id) for each in saved]) < len(saved)
            await free()
            await until(lambda: store.available)
            assert not store._pending
            assert sum([await rows_of(store, each.id) for each in saved]) == len(saved)
    assert [line["event"] for line in lines if line["log_level"] != "warning"] == [
        "response store opened",
        "cannot write to the response store; stored responses can still be read",
        "response store opened",
    ]
    assert found.unstored == 0


async def test_what_is_lost_at_the_end_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with heard(f"sqlite:///{tmp_path}/store.sqlite3") as (store, found):
            await fill(store, monkeypatch)
            assert store.save(record("resp_lost", text=os.urandom(100_000).hex()))
            await until(lambda: not store.available)
            assert found.unstored == 0
    assert found.unstored == 1
    lost = {"event": "a response was not stored", "log_level": "warning"}
    assert lines[-1] == lost | {"response_id": "resp_lost"}


async def test_how_a_response_ended_is_written_once_the_store_is_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    async with heard(url) as (store, found), opened(url) as other:
        await store.put(msgspec.structs.replace(record("resp_k"), status="in_progress"))
        ended = record("resp_k", text="end")
        rename = "ALTER TABLE quire_responses RENAME TO elsewhere"
        await execute(url, rename)
        store.save(updated(record("resp_j")))  # it notices
        await until(lambda: not store.available)
        assert not store.save(record("resp_i"))
        assert store.save(updated(ended))
        assert await store.get("resp_k", "me") == updated(ended)
        await execute(url, "ALTER TABLE elsewhere RENAME TO quire_responses")
        await until(lambda: store.available and not store._pending)
        assert await other.get("resp_k", "me") == ended
        assert not store._running.ids
    assert found.unstored == 0


async def fill(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch, *, pages_left: int = 0
) -> tuple[list[int], Callable[[], Awaitable[None]]]:
    """Let the file grow by at most ``pages_left``, as on a full disk. Return how many writes have
    failed, and what lets it grow again."""
    database = store._database
    assert database is not None
    failed = [0]
    write = database.write

    async def counted(*arguments: Any, **options: Any) -> int:
        try:
            return await write(*arguments, **options)
        except Exception:
            failed[0] += 1
            raise

    monkeypatch.setattr(database, "write", counted)
    engine = database._engine
    async with engine.connect() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()

    def limit(begun: Connection) -> None:
        begun.exec_driver_sql(f"PRAGMA max_page_count = {pages + pages_left}")

    async def free() -> None:
        event.remove(engine.sync_engine, "begin", limit)
        await engine.dispose()

    event.listen(engine.sync_engine, "begin", limit)
    return failed, free


@pytest.mark.debian
async def test_a_database_that_became_read_only_can_be_read(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE readonly")
    url = postgres.url.replace("/postgres", "/readonly")
    async with heard(url) as (store, found):
        await store.put(record("resp_a"))
        await execute(postgres.url, "ALTER DATABASE readonly SET default_transaction_read_only=on")
        await execute(postgres.url, _DISCONNECT)
        store.save(record("resp_b"))
        await until(lambda: found.now == {"unreadable": False, "unwritable": True})
        assert await store.get("resp_a", "me") is not None
        with pytest.raises(StoreUnavailableError, match="read-only"):
            await store.put(record("resp_c"))
        await execute(postgres.url, "ALTER DATABASE readonly RESET default_transaction_read_only")
        await execute(postgres.url, _DISCONNECT)
        await until(lambda: store.available and not store._pending)
        assert await rows_of(store, "resp_b")


_DISCONNECT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'readonly'"


async def test_a_lookup_that_fails_says_that_the_store_is_away(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.sqlite3") as store:
        raw = sqlite3.connect(tmp_path / "store.sqlite3", check_same_thread=False, timeout=60)
        # In a thread: the store needs the event loop to end a transaction that holds the file.
        await asyncio.to_thread(raw.execute, "ALTER TABLE quire_responses RENAME TO elsewhere")
        raw.close()
        with pytest.raises(StoreUnavailableError):
            await store.get("resp_a", "me")
        with pytest.raises(StoreUnavailableError):
            await store.delete("resp_a", "me")


async def test_a_database_driver_that_loses_a_cancellation_cannot_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("service.store.store._CLOSE_SECONDS", 0.05)
    sweeping = asyncio.Event()

    async def sweep(*_: object, **__: object) -> None:
        sweeping.set()
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("service.store.database.Database.sweep", sweep)
    store = ResponseStore(store_place(f"sqlite:///{tmp_path}/store.sqlite3"), MANY)
    store.open()
    await sweeping.wait()
    async with asyncio.timeout(60):
        await store.close()
