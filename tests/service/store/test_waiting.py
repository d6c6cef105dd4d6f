"""Who waits for a write learns how it ended."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import StoreUnavailableError
from service.store.waiting import WaitingWrites


async def test_all_who_wait_for_a_record_are_woken() -> None:
    waiting = WaitingWrites()
    both = [asyncio.create_task(waiting.written("resp_a", 60)) for _ in range(2)]
    await asyncio.sleep(0)
    assert waiting.ids == {"resp_a"}
    waiting.note("resp_b")
    waiting.note("resp_a")
    await asyncio.gather(*both)
    assert not waiting.ids


async def test_a_failure_reaches_all_writes_that_are_waited_for() -> None:
    waiting = WaitingWrites()
    tasks = [asyncio.create_task(waiting.written(name, 60)) for name in ("resp_a", "resp_b")]
    await asyncio.sleep(0)
    waiting.fail("away")
    for task in tasks:
        with pytest.raises(StoreUnavailableError, match="away"):
            await task
    assert not waiting.ids


async def test_waiting_ends_in_time_for_all() -> None:
    said: list[bool] = []
    waiting = WaitingWrites(lambda: said.append(True))
    other = asyncio.create_task(waiting.written("resp_b", 60))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailableError, match="too slow"):
        await waiting.written("resp_a", 0)
    with pytest.raises(StoreUnavailableError, match="too slow"):
        await other
    assert said == [True]


async def test_one_who_leaves_takes_nobody_along() -> None:
    waiting = WaitingWrites()
    leaving, staying = (asyncio.create_task(waiting.written("resp_a", 60)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    waiting.note("resp_a")
    await staying
