"""A query that waits, for its turn or for the database, ends in time."""

from __future__ import annotations

import asyncio

import pytest

from service.store.query_turns import QueryTurnError, QueryTurns, within


async def test_what_waits_for_its_turn_says_so_and_the_turn_is_given_on() -> None:
    turns, go = QueryTurns(1), asyncio.Event()
    first = asyncio.create_task(turns.take(go.wait(), 60))
    await asyncio.sleep(0)
    with pytest.raises(QueryTurnError, match="busy with other queries"):
        await turns.take(go.wait(), 0.01)
    go.set()
    assert await first
    assert await turns.take(go.wait(), 60)


async def test_a_query_that_does_not_end_is_cancelled_and_not_waited_for() -> None:
    turns, cancelled, go = QueryTurns(1), asyncio.Event(), asyncio.Event()

    async def clings() -> None:
        try:
            await go.wait()
        except asyncio.CancelledError:
            cancelled.set()
            await go.wait()  # as a driver does for the database's answer
            raise

    with pytest.raises(TimeoutError, match=r"^$"):
        await turns.take(clings(), 0.01)
    await cancelled.wait()
    with pytest.raises(QueryTurnError, match="busy"):  # it still has its place
        await turns.take(go.wait(), 0.01)
    go.set()
    assert await turns.take(go.wait(), 60)


async def test_a_cancelled_caller_cancels_the_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(within(60, work()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await ended.wait()
