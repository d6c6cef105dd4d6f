"""A store's condition is reported at each change, and logged once."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from service.errors import StoreUnavailableError
from service.store.condition import StoreCondition, StoreWatch, can_be_read, try_writing
from service.store.tables import ResponseRow
from tests.service.store.stored import opened


def test_a_failure_is_logged_once_until_it_ends_or_becomes_another() -> None:
    unwritable: list[bool] = []
    condition = StoreCondition(StoreWatch(unwritable=unwritable.append))
    with capture_logs() as lines:
        for readable in (True, True, False, False):
            condition.fail("full", readable=readable)
            assert (condition.readable, condition.writable) == (readable, False)
        assert condition.has_failed
        condition.recover("sqlite")
        assert not condition.has_failed
    assert [line["event"] for line in lines] == [
        "cannot write to the response store; stored responses can still be read",
        "response store unavailable",
        "response store opened",
    ]
    assert unwritable == [True, True, True, True, False]


def test_a_slow_store_accepts_nothing_until_it_has_caught_up() -> None:
    unwritable: list[bool] = []
    condition = StoreCondition(StoreWatch(unwritable=unwritable.append))
    condition.keep_up()
    condition.slow()
    assert unwritable == []  # it was not writable in the first place
    condition.recover("sqlite")
    condition.slow()
    with pytest.raises(StoreUnavailableError, match="too slow"):
        condition.require(writable=True)
    condition.require(writable=False)
    assert condition.works
    condition.keep_up()
    condition.require(writable=True)
    condition.slow()
    condition.fail("full", readable=True)
    assert not condition.works
    condition.keep_up()
    with pytest.raises(StoreUnavailableError, match="read-only"):
        condition.require(writable=True)
    assert unwritable == [False, True, False, True, True]


async def test_a_trial_leaves_nothing(url: str) -> None:
    async with opened(url) as store:
        database = store._database
        assert database is not None
        await try_writing(database)
        async with database._sessions() as session:
            assert (await session.scalars(select(ResponseRow.id))).all() == []


async def test_a_database_that_timed_out_is_not_queried_again(url: str) -> None:
    async with opened(url) as store:
        assert store._database is not None
        assert await can_be_read(store._database, ValueError())
        assert not await can_be_read(store._database, TimeoutError())
