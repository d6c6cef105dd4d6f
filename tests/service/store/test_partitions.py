"""PostgreSQL keeps requests by the day."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.testing import capture_logs

from service.store.partitions import Partitions
from service.store.place import store_place
from service.store.schema import database_url
from tests.service.running_postgres import Postgres
from tests.service.store.archived import BASE, archived, kept
from tests.service.store.stored import execute

DAY = 86_400
TODAY = int(BASE // DAY)


@pytest.mark.debian
async def test_days_are_made_when_needed_and_dropped_whole(postgres: Postgres) -> None:
    url = postgres.url
    await execute(url, "CREATE DATABASE days")
    url = url.replace("/postgres", "/days")
    async with archived(url) as one:
        one.keep(kept(1), kept(2, ended=BASE - DAY), kept(3, ended=BASE - 2 * DAY))
        await one.written()
        engine = create_async_engine(database_url(store_place(url)))
        # Replicas do it at the same time.
        replicas = [Partitions(engine) for _ in range(3)]
        times = [BASE + number * DAY for number in range(-3, 2)]
        await asyncio.gather(*(one.ensure(times) for one in replicas))
        assert await days(url) == list(range(TODAY - 3, TODAY + 2))
        await asyncio.gather(
            *(one.delete_oldest(before=(TODAY - 1) * DAY, most=10**6) for one in replicas)
        )
        assert await days(url) == [TODAY - 1, TODAY, TODAY + 1]
        await replicas[0].ensure([BASE - 3 * DAY])
        assert TODAY - 3 in await days(url)
        await engine.dispose()


@pytest.mark.debian
async def test_a_step_of_the_clock_makes_only_the_days_that_requests_have(
    postgres: Postgres,
) -> None:
    await execute(postgres.url, "CREATE DATABASE stepped")
    url = postgres.url.replace("/postgres", "/stepped")
    async with archived(url) as one:
        one.keep(kept(1), kept(2, ended=BASE - 20_000 * DAY), kept(3))
        await one.written()
        # The sweep may have dropped the old day again.
        assert set(await days(url)) <= {TODAY - 20_000, TODAY - 1, TODAY, TODAY + 1}
        assert one.dropped == 0
        engine = create_async_engine(database_url(store_place(url)))
        await Partitions(engine).ensure([BASE - 9000 * DAY, BASE - 10_000 * DAY])
        await engine.dispose()
        assert {TODAY - 10_000, TODAY - 9000} <= set(await days(url))
        assert len(await days(url)) <= 6


@pytest.mark.debian
async def test_a_day_is_made_while_a_backup_reads_requests(postgres: Postgres) -> None:
    """With the indexes of the table that it is part of, and no others."""
    await execute(postgres.url, "CREATE DATABASE read_at_midnight")
    url = postgres.url.replace("/postgres", "/read_at_midnight")
    engine = create_async_engine(database_url(store_place(url)))
    async with archived(url) as one:
        one.keep(kept(1, ended=BASE - DAY))
        await one.written()
        async with engine.connect() as backup:
            await backup.execute(text("SELECT count(*) FROM quire_requests"))
            replicas = [Partitions(engine) for _ in range(3)]
            async with asyncio.timeout(10):
                await asyncio.gather(*(one.ensure([BASE]) for one in replicas))
            one.keep(kept(1))
            await one.written()
            assert not one.archive.is_away
        assert await one.archive.find(kept(1).request_id) is not None
    async with engine.connect() as connection:
        assert await connection.scalar(_INDEXES, {"name": f"quire_requests_d{TODAY}"}) == 4
        assert await connection.scalar(_INDEXES, {"name": "quire_requests"}) == 4
    await engine.dispose()


_INDEXES = text("SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(:name) AND indisvalid")


@pytest.mark.debian
async def test_a_day_whose_table_is_detached_is_attached_with_its_rows(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE detached")
    url = postgres.url.replace("/postgres", "/detached")
    async with archived(url) as one:
        one.keep(kept(1, ended=BASE))
        await one.written()
        table = f"quire_requests_d{TODAY}"
        await execute(url, f"ALTER TABLE quire_requests DETACH PARTITION {table}")
        one.keep(kept(2, ended=BASE))
        await one.written()
        assert one.dropped == 0
        for number in (1, 2):
            assert await one.archive.find(kept(number).request_id) is not None


@pytest.mark.debian
async def test_a_day_that_cannot_be_attached_holds_up_no_other(postgres: Postgres) -> None:
    """An operator has put rows of today into the table of tomorrow."""
    await execute(postgres.url, "CREATE DATABASE not_attachable")
    url = postgres.url.replace("/postgres", "/not_attachable")
    async with archived(url) as one:
        one.keep(kept(1, ended=BASE))
        await one.written()
        table = f"quire_requests_d{TODAY + 1}"
        await execute(url, f"CREATE TABLE {table} (LIKE quire_requests INCLUDING ALL)")
        await execute(url, f"INSERT INTO {table} SELECT * FROM quire_requests")  # noqa: S608
        with capture_logs() as lines:
            for number in (2, 4):
                one.keep(kept(number, ended=BASE), kept(number + 1, ended=BASE + DAY))
                await one.written()
        assert not one.archive.is_away
        assert [line["event"][:50] for line in lines if table in line["event"]] == [
            f"the table {table} cannot be attached to"[:50]
        ]
        for number, is_stored in ((2, True), (3, False), (4, True), (5, False)):
            found = await one.archive.find(kept(number).request_id)
            assert (found is not None) == is_stored


@pytest.mark.debian
async def test_a_day_is_in_the_tablespace_of_all(postgres: Postgres) -> None:
    url = postgres.url.replace("/postgres", "/elsewhere")
    await execute(postgres.url, "CREATE DATABASE elsewhere")
    await execute(postgres.url, "ALTER DATABASE elsewhere SET allow_in_place_tablespaces = on")
    engine = create_async_engine(database_url(store_place(url)))
    async with archived(url):
        await execute(url, "CREATE TABLESPACE \"new disk\" LOCATION ''")
        await execute(url, 'ALTER TABLE quire_requests SET TABLESPACE "new disk"')
        await Partitions(engine).ensure([BASE + 3 * DAY])
        async with engine.connect() as connection:
            space = await connection.scalar(
                text("SELECT tablespace FROM pg_tables WHERE tablename = :name"),
                {"name": f"quire_requests_d{TODAY + 3}"},
            )
        assert space == "new disk"
    await engine.dispose()


@pytest.mark.debian
async def test_a_day_whose_making_was_cut_leaves_nothing(postgres: Postgres) -> None:
    """The connection is lost after the table was created, before it was attached."""
    await execute(postgres.url, "CREATE DATABASE cut")
    url = postgres.url.replace("/postgres", "/cut")
    engine = create_async_engine(database_url(store_place(url)))
    day = TODAY - 5
    async with archived(url):
        await execute(url, _CUT_FUNCTION)
        await execute(url, _CUT_TRIGGER)
        with pytest.raises(DBAPIError):
            await Partitions(engine).ensure([day * DAY])
        await execute(url, "DROP EVENT TRIGGER cut")
        assert day not in await days(url)
        await Partitions(engine).ensure([day * DAY])
        assert day in await days(url)
    await engine.dispose()


_CUT_FUNCTION = """
    CREATE FUNCTION cut() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); END $$
"""
_CUT_TRIGGER = (
    "CREATE EVENT TRIGGER cut ON ddl_command_end WHEN TAG IN ('CREATE TABLE') "
    "EXECUTE FUNCTION cut()"
)


@pytest.mark.debian
async def test_the_limit_holds_after_a_crash_of_the_database(postgres: Postgres) -> None:
    """It loses its statistics: how many rows each day has."""
    await execute(postgres.url, "CREATE DATABASE crashed")
    url = postgres.url.replace("/postgres", "/crashed")
    async with archived(url) as one:
        for day in range(3):
            one.keep(*(kept(1000 * day + n, ended=BASE - day * DAY) for n in range(200)))
        await one.written()
    postgres.stop()
    postgres.start()
    engine = create_async_engine(database_url(store_place(url)))
    await Partitions(engine).delete_oldest(before=0.0, most=150)
    await engine.dispose()
    assert await days(url) == [TODAY]


@pytest.mark.debian
async def test_a_record_of_the_future_does_not_end_the_limit_of_today(postgres: Postgres) -> None:
    await execute(postgres.url, "CREATE DATABASE ahead")
    url = postgres.url.replace("/postgres", "/ahead")
    engine = create_async_engine(database_url(store_place(url)))
    today = int(time.time() // DAY) * DAY
    async with archived(url) as one:
        one.keep(
            kept(0, ended=today + 9.5 * DAY), *(kept(n, ended=today + n) for n in range(1, 30))
        )
        await one.written()
    partitions = Partitions(engine)
    for _ in range(3):
        await partitions.delete_oldest(before=0.0, most=10)
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT ended FROM quire_requests ORDER BY ended"))
        ends = [row[0] for row in found]
    await engine.dispose()
    assert ends == [*(today + n for n in range(21, 30)), today + 9.5 * DAY]


async def days(url: str) -> list[int]:
    engine = create_async_engine(database_url(store_place(url)))
    async with engine.connect() as connection:
        found = await connection.execute(
            text("SELECT relname FROM pg_class WHERE relname ~ '^quire_requests_d[0-9]+$'")
        )
        names = [row[0] for row in found]
    await engine.dispose()
    numbers = sorted(int(name.removeprefix("quire_requests_d")) for name in names)
    # The archive itself creates its today and tomorrow: one day more if midnight has just passed.
    return [number for number in numbers if number <= TODAY + 1]
