"""Turns at the event loop."""

from __future__ import annotations

import asyncio
import time

from service.turns import Pace, my_turn

_ANSWERS, _PIECES = 50, 20


async def test_one_of_many_goes_on_in_each_round_of_the_event_loop() -> None:
    rounds: list[int] = []  # pieces done in each
    done = 0

    async def answer() -> None:
        nonlocal done
        for _ in range(_PIECES):
            await my_turn()
            done += 1

    async def stream() -> None:
        seen = 0
        while seen < _ANSWERS * _PIECES:
            rounds.append(done - seen)
            seen = done
            await asyncio.sleep(0)

    await asyncio.gather(stream(), *(answer() for _ in range(_ANSWERS)))
    assert max(rounds) == 1
    assert len(rounds) < _ANSWERS * _PIECES * 3  # nor is a round lost


async def test_turns_come_in_order_and_one_that_gives_up_delays_nobody() -> None:
    order: list[int] = []

    async def answer(number: int) -> None:
        await my_turn()
        order.append(number)

    tasks = [asyncio.create_task(answer(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert order == [1, 3, 4]
    async with asyncio.timeout(5):
        await my_turn()  # the queue is not stuck


async def test_small_pieces_of_work_share_a_turn() -> None:
    rounds = 0

    async def stream() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(stream())
    await my_turn()
    pace, before, begun = Pace(), rounds, time.monotonic()
    pieces = 0
    while time.monotonic() < begun + 0.05:
        pieces += 1
        await pace.rest()
    other.cancel()
    assert before < rounds < pieces / 10
