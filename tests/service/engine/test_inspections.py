from __future__ import annotations

import asyncio

import pytest

from engine.inspected import Inspect, Inspected
from service.engine.inspections import MOST_INSPECTIONS, Inspections, NoInspectionError


class Engine:
    """Keeps what it is sent."""

    is_there = True

    def __init__(self) -> None:
        self.asked: list[Inspect] = []
        self.inspections = Inspections(self.send)

    def send(self, message: Inspect) -> bool:
        if self.is_there:
            self.asked.append(message)
        return self.is_there


async def test_each_answer_reaches_who_asked() -> None:
    engine = Engine()
    first = asyncio.create_task(engine.inspections.inspect())
    second = asyncio.create_task(engine.inspections.inspect(kv=False, prefixes=7))
    await asyncio.sleep(0)
    one, two = engine.asked
    assert (one.kv, one.prefixes, two.kv, two.prefixes) == (True, 0, False, 7)
    engine.inspections.answered(Inspected(number=two.number, time=2.0))
    engine.inspections.answered(Inspected(number=one.number, time=1.0))
    engine.inspections.answered(Inspected(number=99, time=1.0))  # whose asker has given up
    assert ((await first).time, (await second).time) == (1.0, 2.0)


async def test_without_an_engine_there_is_no_answer() -> None:
    engine = Engine()
    engine.is_there = False
    with pytest.raises(NoInspectionError, match="no engine is running"):
        await engine.inspections.inspect()


async def test_an_engine_that_does_not_answer_is_not_waited_for() -> None:
    engine = Engine()
    with pytest.raises(NoInspectionError, match=r"within 0\.01 s"):
        await engine.inspections.inspect(timeout=0.01)


async def test_when_the_engine_is_lost_nobody_waits_on() -> None:
    engine = Engine()
    waiting = asyncio.create_task(engine.inspections.inspect())
    await asyncio.sleep(0)
    engine.inspections.lost()
    engine.inspections.answered(Inspected(number=1, time=0.0))
    with pytest.raises(NoInspectionError, match="has exited"):
        await waiting


async def test_only_so_many_wait_at_once() -> None:
    engine = Engine()
    waiting = [asyncio.create_task(engine.inspections.inspect()) for _ in range(MOST_INSPECTIONS)]
    await asyncio.sleep(0)
    with pytest.raises(NoInspectionError, match="other requests are waiting"):
        await engine.inspections.inspect()
    engine.inspections.lost()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(engine.asked) == MOST_INSPECTIONS
