"""Which leases a process renews."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from service.store.database import Database
from service.store.place import store_place
from service.store.running import LEASE_SECONDS, TRACE_KEPT_SECONDS, RunningResponses
from tests.service.store.stored import opened, record, until


async def test_a_response_is_in_progress_until_its_end_is_written() -> None:
    running = RunningResponses()
    begun = msgspec.structs.replace(record("resp_a"), status="in_progress")
    running.begin(begun)
    assert running.get("resp_a") is begun
    running.written([begun])
    assert running.ids == {"resp_a"}
    running.written([record("resp_a"), record("resp_b")])
    assert not running.ids
    assert running.get("resp_a") is None


async def test_only_what_was_written_can_have_been_deleted(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.sqlite3") as store:
        assert store._database is not None
        running = RunningResponses()
        for name in ("resp_a", "resp_b"):
            running.begin(msgspec.structs.replace(record(name), status="in_progress"))
        assert await running.missing(store._database) == (set(), [])
        begun = msgspec.structs.replace(record("resp_a"), status="in_progress")
        running.begin(begun)
        running.written([begun])
        assert await running.missing(store._database) == (set(), [begun])
        await store.put(begun)
        assert await running.missing(store._database) == (set(), [])
        assert await store.delete("resp_a", "me")
        await until(lambda: not store._gone)
        assert await running.missing(store._database) == ({"resp_a"}, [])
        assert running.ids == {"resp_b"}


def test_leases_are_held_for_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("service.store.running.time.monotonic", lambda: now)
    running = RunningResponses()
    assert not running.holds_leases
    running.leased(990.0)
    assert running.holds_leases
    now += LEASE_SECONDS
    assert not running.holds_leases


async def test_after_longer_than_traces_are_kept_what_is_missing_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(store_place(f"sqlite:///{tmp_path}/store.sqlite3"))
    await database.bring_up_to_date()
    clock = Mock(monotonic=Mock(return_value=1000.0))
    monkeypatch.setattr("service.store.running.time", clock)
    running = RunningResponses()
    begun = msgspec.structs.replace(record("resp_a"), status="in_progress")
    running.begin(begun)
    running.written([begun])
    ended = msgspec.structs.replace(record("resp_a"), is_update=True)
    clock.monotonic.return_value += TRACE_KEPT_SECONDS - 1
    assert await running.missing(database) == (set(), [begun])
    clock.monotonic.return_value += TRACE_KEPT_SECONDS - 1
    assert running.to_write([ended]) == [ended]
    clock.monotonic.return_value += 1
    new = msgspec.structs.replace(record("resp_b"), status="in_progress")
    await database.write(running.to_write([ended, begun, new]), (), lease=60)
    assert await database.find("resp_a") is None
    assert await database.find("resp_b") == new
    assert await running.missing(database) == ({"resp_a"}, [])
    assert not running.ids
    assert running.to_write([ended]) == [ended]
    await database.close()
