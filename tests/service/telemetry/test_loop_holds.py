"""The loop's holds are CPU time, and an idle server measures none."""

from __future__ import annotations

import asyncio
import time

from service.telemetry.loop_holds import INTERVAL_SECONDS, LoopHolds


async def test_a_hold_is_the_cpu_time_until_a_timer_had_its_turn() -> None:
    held: list[float] = []
    holds = LoopHolds(held.append)
    holds.start()
    holds.request_begins()
    begin = time.thread_time()
    while time.thread_time() - begin < 0.05:
        pass
    while not held:
        await asyncio.sleep(0)
    assert held[0] >= 0.05
    holds.stop()


async def test_an_idle_server_measures_nothing() -> None:
    held: list[float] = []
    holds = LoopHolds(held.append)
    holds.start()
    await asyncio.sleep(2 * INTERVAL_SECONDS)
    assert held == []
    holds.request_begins()
    holds.request_ends()
    while not held:
        await asyncio.sleep(INTERVAL_SECONDS)
    await asyncio.sleep(3 * INTERVAL_SECONDS)
    assert len(held) == 1  # the look that was due when the request ended
    holds.stop()


async def test_waiting_is_not_holding() -> None:
    held: list[float] = []
    holds = LoopHolds(held.append)
    holds.start()
    holds.request_begins()
    while len(held) < 3:
        await asyncio.sleep(INTERVAL_SECONDS)
    assert max(held) < INTERVAL_SECONDS
    holds.stop()


async def test_a_message_of_the_engine_brings_the_look_before_the_timer() -> None:
    held: list[float] = []
    holds = LoopHolds(held.append)
    holds.start()
    holds.request_begins()
    holds.engine_spoke()
    await asyncio.sleep(0)
    assert held == []  # the last look was just now
    begin = time.monotonic()
    while time.monotonic() - begin < INTERVAL_SECONDS / 2:
        pass
    await asyncio.sleep(0)  # the loop learns the time
    holds.engine_spoke()
    await asyncio.sleep(0)
    assert len(held) == 1  # the timer had half of its time left
    holds.stop()


async def test_many_messages_in_one_turn_do_not_split_its_hold() -> None:
    held: list[float] = []
    holds = LoopHolds(held.append)
    holds.start()
    holds.request_begins()
    await asyncio.sleep(INTERVAL_SECONDS)
    held.clear()
    for _ in range(10):
        holds.engine_spoke()
        begin = time.thread_time()
        while time.thread_time() - begin < 0.01:
            pass
    while not held:
        await asyncio.sleep(0)
    assert held[0] >= 0.1
    holds.stop()
