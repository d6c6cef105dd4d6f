"""A worker that ends finishes its requests, and takes no new one."""

from __future__ import annotations

import asyncio

import pytest

from service.admission.drain import Drain
from service.errors import DrainingError
from tests.service.admission.test_admission import Queue, admission


async def test_a_drain_refuses_new_work_and_waits_for_the_old() -> None:
    drain = Drain(timeout=30)
    drain.enter()
    drain.enter()
    drain.begin()
    with pytest.raises(DrainingError) as caught:
        admission(Queue(), drain).check()
    assert caught.value.retry_after == 1  # another replica may be idle
    assert not await drain.wait_idle(0.01)
    waiting = asyncio.create_task(drain.wait_idle(5))
    drain.leave()
    drain.leave()
    assert await waiting
    assert (drain.in_flight, drain.answered) == (0, 2)


async def test_an_announced_drain_is_not_ready_but_takes_requests() -> None:
    drain = Drain(timeout=30)
    hurry = asyncio.Event()
    await drain.announce(0.0, hurry)
    assert not drain.draining
    announcing = asyncio.create_task(drain.announce(600.0, hurry))
    while not drain.draining:
        await asyncio.sleep(0)
    assert drain.is_ending
    admission(Queue(), drain).check()
    hurry.set()
    await announcing
    drain.begin()
    with pytest.raises(DrainingError):
        admission(Queue(), drain).check()


async def test_bodies_that_are_still_arriving_are_cut_when_the_drain_begins() -> None:
    drain = Drain(timeout=30)

    async def upload() -> None:
        async with asyncio.timeout(600) as limit:
            drain.uploads.add(limit)
            drain.begin()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await upload()
    left = drain.seconds_left
    while drain.seconds_left > left - 0.01:
        pass
    drain.begin()  # a second signal does not extend it
    assert 0 < drain.seconds_left <= left - 0.01
    assert drain.answered == 0


async def test_an_operators_drain_can_be_undone_and_a_shutdown_cannot() -> None:
    drain = Drain(timeout=30)
    drain.hold()
    assert drain.draining
    assert not drain.is_ending
    assert not drain.has_begun
    with pytest.raises(DrainingError) as caught:
        admission(Queue(), drain).check()
    assert caught.value.retry_after is None
    assert "operator" in caught.value.message
    drain.release()
    admission(Queue(), drain).check()
    drain.hold()
    drain.begin()
    drain.release()
    assert drain.draining
    assert drain.is_ending
    assert drain.has_begun
