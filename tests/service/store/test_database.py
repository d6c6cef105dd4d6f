"""What the store asks of its database, and what is said of its failures."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.exc import StatementError

from service.store.database import Database
from service.store.place import store_place
from service.store.record import StoredResponse
from service.store.running import Missing
from service.store.tables import ResponseRow, from_row, to_row
from tests.service.running_postgres import Postgres
from tests.service.store.stored import execute, record


def test_the_log_line_of_a_failure_contains_nothing_of_the_response() -> None:
    database = Database(store_place("sqlite:///store.sqlite3"))
    failure = StatementError("no", "INSERT …", {"body": "a prompt"}, TypeError("not a number"))
    assert database.explain(failure) == "TypeError: not a number"
    row = "null value in column\nDETAIL:  Failing row contains (resp_1, a prompt)."
    assert database.explain(OSError(row)) == "OSError: null value in column"
    assert database.explain(TimeoutError()) == "TimeoutError"


def test_the_log_line_of_a_failure_does_not_contain_the_password() -> None:
    database = Database(store_place("postgresql://quire:hunter2@db.example/quire"))
    failure = OSError("cannot connect to postgresql://quire:hunter2@db.example/quire")
    said = database.explain(failure)
    assert said == "OSError: cannot connect to postgresql://quire:…@db.example/quire"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(store_place(f"sqlite:///{tmp_path}/store.sqlite3"))
    await database.bring_up_to_date()
    yield database
    await database.close()


async def test_an_update_of_what_was_deleted_in_progress_stores_nothing_and_harms_no_other(
    database: Database,
) -> None:
    await database.write([begun("resp_a"), begun("resp_b")], (), lease=60)
    assert await database.delete("resp_a", "me")
    updates = [
        msgspec.structs.replace(record(name, text="later"), is_update=True)
        for name in ("resp_a", "resp_b")
    ]
    await database.write([*updates, record("resp_c")], (), lease=60)
    assert await database.find("resp_a") is None
    assert await database.find("resp_b") == record("resp_b", text="later")
    ids = ["resp_a", "resp_b", "resp_c", "resp_d"]
    assert await database.missing(ids) == Missing({"resp_a"}, {"resp_d"})
    await database.remove({"resp_b", "resp_d"})
    assert await database.missing(ids) == Missing({"resp_a"}, {"resp_b", "resp_d"})


async def test_what_is_still_in_progress_is_not_deleted_as_too_much(database: Database) -> None:
    old = msgspec.structs.replace(at(1, record("resp_old")), status="in_progress")
    await database.write([old, at(2, record("resp_mid")), at(3, record("resp_new"))], (), lease=60)
    await database.sweep(responses=1, size=1 << 30, running=(), lease=60)
    names = ["resp_old", "resp_mid", "resp_new"]
    assert await left(database, names) == ["resp_old", "resp_new"]
    late = msgspec.structs.replace(record("resp_late", ttl=-1), status="in_progress")
    await database.write([late, record("resp_over", ttl=-1)], (), lease=60)
    await database.sweep(responses=10, size=1 << 30, running=(), lease=60)
    assert await left(database, ["resp_late", "resp_over"]) == ["resp_late"]
    await database.remove({"resp_late"})
    await database.write([old], (), lease=-60)  # its process is gone
    await database.sweep(responses=1, size=1 << 30, running=(), lease=60)
    assert await left(database, names) == ["resp_new"]


async def test_any_number_of_responses_may_be_in_progress(url: str) -> None:
    database = Database(store_place(url))
    await database.bring_up_to_date()
    names = [f"resp_{number}" for number in range(40_000)]
    queued = [msgspec.structs.replace(record(each), status="queued") for each in names[-2:]]
    await database.write(queued, (), lease=-60)
    assert (await database.missing(names)).lost == set(names[:-2])
    await database.sweep(responses=10, size=1 << 30, running=names, lease=60)
    for each in queued:
        found = await database.find(each.id)
        assert found is not None
        assert not found.abandoned
    await database.close()


def at(second: int, kept: StoredResponse) -> StoredResponse:
    return msgspec.structs.replace(kept, created_at=second)


async def test_a_response_is_found_until_its_owner_deletes_it(database: Database) -> None:
    kept = record("resp_a")
    size = await database.write([kept], (), lease=60)
    assert size == to_row(kept)["size"]
    assert await database.find("resp_a") == kept
    assert await database.find("resp_b") is None
    assert not await database.delete("resp_a", "you")
    assert await database.delete("resp_a", "me")
    assert not await database.delete("resp_a", "me")
    assert await database.find("resp_a") is None


async def test_a_write_takes_the_place_of_what_was_there_and_keeps_nothing_that_is_gone(
    database: Database,
) -> None:
    await database.write([record("resp_a", text="first"), record("resp_b")], (), lease=60)
    newer = record("resp_a", text="second")
    await database.write([newer, record("resp_c")], {"resp_b", "resp_c"}, lease=60)
    assert await database.find("resp_a") == newer
    assert await database.find("resp_b") is None
    assert await database.find("resp_c") is None


@pytest.mark.parametrize(
    ("status", "lease", "abandoned"),
    [
        ("in_progress", 60, False),
        ("in_progress", -60, True),
        ("queued", -60, True),
        ("completed", -60, False),
    ],
)
async def test_running_responses_are_abandoned_once_their_lease_has_ended(
    database: Database, status: str, lease: int, abandoned: bool
) -> None:
    kept = msgspec.structs.replace(record("resp_a"), status=status)
    await database.write([kept], (), lease=lease)
    found = await database.find("resp_a")
    assert found is not None
    assert found.abandoned is abandoned
    await database.sweep(responses=9, size=1 << 30, running=["resp_a"], lease=60)
    found = await database.find("resp_a")
    assert found is not None
    assert not found.abandoned


async def left(database: Database, ids: list[str]) -> list[str]:
    return [each for each in ids if await database.find(each) is not None]


async def test_a_sweep_takes_the_expired_and_the_oldest_beyond_the_count(
    database: Database,
) -> None:
    ids = [f"resp_{number}" for number in range(6)]
    kept = [at(number, record(each)) for number, each in enumerate(ids)]
    kept[5] = msgspec.structs.replace(kept[5], expires_at=int(time.time()) - 1)
    await database.write(kept, (), lease=60)
    await database.sweep(responses=2, size=1 << 30, running=(), lease=60, deletes=False)
    assert await left(database, ids[:5]) == ids[:5]
    await database.sweep(responses=9, size=1 << 30, running=(), lease=60)
    assert await left(database, ids) == ids[:5]
    await database.sweep(responses=2, size=1 << 30, running=(), lease=60)
    assert await left(database, ids) == ids[3:5]
    await database.sweep(responses=2, size=0, running=(), lease=60)
    assert await left(database, ids) == []


async def test_an_owner_below_its_share_loses_nothing_to_one_above(
    database: Database,
) -> None:
    many = [at(number + 10, record(f"resp_m{number}", "many")) for number in range(5)]
    await database.write([at(1, record("resp_few", "few")), *many], (), lease=60)
    await database.sweep(responses=3, size=1 << 30, running=(), lease=60)
    ids = [one.id for one in many]
    assert await left(database, ["resp_few", *ids]) == ["resp_few", *ids[3:]]


async def test_nothing_is_read_or_written_while_another_file_is_in_its_place(
    database: Database, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "store.sqlite3", tmp_path / "elsewhere"
    await database.write([record("resp_a")], (), lease=60)
    for content in (None, b""):
        file.rename(elsewhere)
        if content is not None:
            file.write_bytes(content)
        for attempt in (
            *(database.find("resp_a"), database.write([record("resp_b")], (), lease=60)),
            database.bring_up_to_date(),
        ):
            with pytest.raises(Database.FAILURES, match=r"was deleted or replaced"):
                await attempt
        assert file.exists() == (content is not None)
        elsewhere.replace(file)
        assert await database.find("resp_a") == record("resp_a")


async def test_a_database_that_is_not_there_fails_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    database = Database(store_place(f"sqlite:///{tmp_path}/file/store.sqlite3"))
    with pytest.raises(Database.FAILURES) as raised:
        await database.find("resp_a")
    assert "unable to open" in database.explain(raised.value)
    await database.close()


async def test_what_the_database_lost_is_stored_again_and_what_was_deleted_is_not(
    url: str,
) -> None:
    database = Database(store_place(url))
    await database.bring_up_to_date()
    await database.write([begun("resp_a"), begun("resp_b")], (), lease=60)
    await database.remove(["resp_a"])  # as after a failover to an older copy
    assert await database.delete("resp_b", "me")
    ended = [record("resp_a", text="end"), record("resp_b", text="end")]
    await database.write(
        [msgspec.structs.replace(each, is_update=True) for each in ended], (), lease=60
    )
    assert await database.find("resp_a") == ended[0]
    assert await database.find("resp_b") is None
    await database.close()


def begun(response_id: str) -> StoredResponse:
    return msgspec.structs.replace(record(response_id), status="in_progress")


async def rows(database: Database) -> list[ResponseRow]:
    async with database._sessions() as session:
        return list(await session.scalars(select(ResponseRow).order_by(ResponseRow.id)))


async def test_the_trace_of_a_deleted_response_has_no_content_counts_as_none_and_is_swept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [at(number, record(name)) for number, name in enumerate(("resp_b", "resp_c"))]
    await database.write([begun("resp_a"), *kept], (), lease=60)
    assert await database.delete("resp_a", "me")
    assert not await database.delete("resp_a", "")
    row = (await rows(database))[0]
    trace = from_row(row)
    assert trace.id == "deleted:resp_a"
    assert (trace.owner, trace.body, trace.input, trace.context) == ("", b"", b"", b"")
    assert trace.events is None
    await database.sweep(responses=2, size=1 << 30, running=["resp_a"], lease=-60)
    assert await left(database, ["resp_b", "resp_c"]) == ["resp_b", "resp_c"]
    assert (await database.missing(["resp_a"])).deleted == {"resp_a"}
    monkeypatch.setattr("service.store.database.TRACE_KEPT_SECONDS", -60)
    await database.write([begun("resp_b")], (), lease=60)
    assert await database.delete("resp_b", "me")
    await database.sweep(responses=2, size=1 << 30, running=(), lease=60)
    assert await database.missing(["resp_a", "resp_b"]) == Missing({"resp_a"}, {"resp_b"})


async def test_earlier_versions_find_nothing_of_a_deleted_response_that_they_run(
    database: Database,
) -> None:
    await database.write([begun("resp_a")], (), lease=60)
    assert await database.delete("resp_a", "me")
    # What they query and write, by the response's id.
    of_it = ResponseRow.id == "resp_a"
    async with database._sessions() as session:
        assert (await session.scalars(select(ResponseRow.id).where(of_it))).all() == []
        await session.execute(update(ResponseRow).where(of_it).values(to_row(record("resp_a"))))
        await session.commit()
    assert await database.find("resp_a") is None
    assert (await database.missing(["resp_a"])).deleted == {"resp_a"}


async def test_deleting_what_has_ended_leaves_nothing_and_its_stream_is_not_stored_later(
    url: str,
) -> None:
    database = Database(store_place(url))
    await database.bring_up_to_date()
    ended = [record("resp_a"), record("resp_b")]
    await database.write(ended, (), lease=60)
    assert await database.delete("resp_a", "me")
    assert [row.id for row in await rows(database)] == ["resp_b"]
    later = [
        msgspec.structs.replace(each, is_update=True, must_exist=True, events=b"all")
        for each in ended
    ]
    await database.write(later, (), lease=60)
    assert [(row.id, from_row(row).events) for row in await rows(database)] == [("resp_b", b"all")]
    await database.close()


@pytest.mark.debian
async def test_a_write_that_waited_for_a_deletion_stores_nothing(postgres: Postgres) -> None:
    name = f"test_{secrets.token_hex(4)}"
    await execute(postgres.url, f"CREATE DATABASE {name}")
    database = Database(store_place(postgres.url.replace("/postgres", f"/{name}")))
    await database.bring_up_to_date()
    await database.write([begun("resp_a")], (), lease=60)
    async with database._sessions() as session:
        # As ``delete`` does, before its commit.
        await session.execute(delete(ResponseRow).where(ResponseRow.id == "resp_a"))
        trace = to_row(record("deleted:resp_a")) | {"expires_at": 0}
        await session.execute(insert(ResponseRow).values(trace))
        writing = asyncio.create_task(database.write([record("resp_a")], (), lease=60))
        waits = text(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        while not await session.scalar(waits):
            # Within a transaction PostgreSQL shows what it has read before.
            await session.execute(text("SELECT pg_stat_clear_snapshot()"))
        await session.commit()
    await writing
    assert await database.find("resp_a") is None
    await database.close()
