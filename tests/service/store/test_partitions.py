"""PostgreSQL keeps requests by the day."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

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


async def days(url: str) -> list[int]:
    from sqlalchemy import text

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
