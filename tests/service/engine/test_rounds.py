"""Calls that belong together are made in one callback, and sockets get their turn in between."""

from __future__ import annotations

import asyncio

from service.engine.rounds import round_of


async def test_calls_are_made_in_their_order_and_none_twice() -> None:
    made: list[int] = []
    together = round_of(asyncio.get_running_loop())
    for number in range(200):
        together.add(lambda number=number: made.append(number))  # type: ignore[misc]  # a default binds it
    assert made == []
    while len(made) < 200:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert made == list(range(200))


async def test_the_loop_continues_between_parts_of_a_large_round() -> None:
    made: list[int] = []
    together = round_of(asyncio.get_running_loop())
    for number in range(200):
        together.add(lambda number=number: made.append(number))  # type: ignore[misc]  # a default binds it
    seen = set()
    while len(made) < 200:
        await asyncio.sleep(0)
        seen.add(len(made))
    assert len(seen) >= 3


async def test_a_call_may_add_the_next_one() -> None:
    made: list[str] = []
    together = round_of(asyncio.get_running_loop())

    def first() -> None:
        made.append("first")
        together.add(lambda: made.append("second"))

    together.add(first)
    while len(made) < 2:
        await asyncio.sleep(0)
    assert made == ["first", "second"]


def test_each_loop_has_its_own() -> None:
    async def mine() -> object:
        loop = asyncio.get_running_loop()
        assert round_of(loop) is round_of(loop)
        return round_of(loop)

    assert asyncio.run(mine()) is not asyncio.run(mine())
