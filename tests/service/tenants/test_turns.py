"""Owners take turns; one owner's many requests do not delay another's."""

from __future__ import annotations

import asyncio
import random
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.errors import OverloadedError
from service.tenants.turns import Turns


class Work:
    """Holds turns until it is released, and remembers in which order they were given."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.done: dict[str, asyncio.Event] = {}

    async def _hold(self, name: str, owner: str, size: int) -> None:
        async with self.turns.turn(owner, size):
            self.order.append(name)
            await self.done[name].wait()

    async def begin(self, name: str, owner: str, size: int = 1) -> asyncio.Task[None]:
        self.done[name] = asyncio.Event()
        task = asyncio.create_task(self._hold(name, owner, size))
        await _settled()
        return task

    async def end(self, *names: str) -> None:
        for name in names:
            self.done[name].set()
            await _settled()


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def working(slots: int = 1, **limits: int) -> AsyncIterator[Work]:
    bounds = {"large": 100, "most_waiting": 8, "most_bytes": 1000} | limits
    work = Work(Turns(slots, what="a test", **bounds))
    yield work
    work.done = {name: event for name, event in work.done.items() if not event.is_set()}
    await work.end(*work.done)
    assert work.turns.waiting == 0
    assert (work.turns._running, work.turns._running_large) == (0, 0)
    assert (work.turns._small_bytes, work.turns._large_bytes) == (0, 0)


async def test_owners_are_served_in_rotation() -> None:
    async with working() as work:
        await work.begin("a1", "a")
        for name in ("a2", "a3", "a4"):
            await work.begin(name, "a")
        await work.begin("b1", "b")
        await work.end("a1", "a2", "b1", "a3", "a4")
        assert work.order.index("b1") <= 2


async def test_an_owners_smallest_request_goes_first() -> None:
    async with working() as work:
        await work.begin("first", "a")
        await work.begin("big", "a", 90)
        await work.begin("small", "a", 5)
        await work.end("first", "small", "big")
        assert work.order == ["first", "small", "big"]


async def test_a_request_that_has_waited_long_goes_before_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.tenants.turns._PATIENCE_SECONDS", 0.0)
    async with working() as work:
        await work.begin("first", "a")
        await work.begin("big", "a", 90)
        await work.begin("small", "a", 5)
        await work.end("first", "big", "small")
        assert work.order == ["first", "big", "small"]
    assert not work.turns._queues  # nothing is kept of an owner of whom nothing waits


async def test_large_work_leaves_a_slot_to_small_work() -> None:
    async with working(2) as work:
        await work.begin("large", "a", 200)
        await work.begin("larger", "b", 300)
        await work.begin("small", "c", 5)
        assert work.order == ["large", "small"]
        await work.end("large")
        assert work.order == ["large", "small", "larger"]


async def test_a_full_queue_refuses_the_client_that_filled_it() -> None:
    async with working(most_waiting=3) as work:
        await work.begin("a0", "a")
        crowd = [await work.begin(f"a{number}", "a", number) for number in (1, 2, 3)]
        with pytest.raises(OverloadedError):
            await (await work.begin("a4", "a"))
        other = await work.begin("b1", "b")
        with pytest.raises(OverloadedError):
            await crowd[-1]  # its largest gave way
        assert not other.done()
        await work.end("a0", "a1", "b1")
        assert "b1" in work.order


async def test_bytes_are_bounded_and_a_single_one_may_be_larger() -> None:
    async with working(most_bytes=1000) as work:
        await work.begin("huge", "a", 5000)
        with pytest.raises(OverloadedError) as refused:
            await (await work.begin("next", "b", 101))
        assert refused.value.status == 429
        await work.begin("small", "b", 10)  # another's, which the large one does not keep out
        await work.end("huge")
        await work.end("small")
        await work.begin("later", "b", 101)
        assert work.order == ["huge", "small", "later"]


async def test_a_sequence_that_leaves_while_it_is_given_up_fails_no_other() -> None:
    async with working(most_waiting=2) as work:
        await work.begin("a0", "a")
        await work.begin("a1", "a")
        leaving = await work.begin("a2", "a", 50)
        work.done["b1"] = asyncio.Event()
        other = asyncio.create_task(work._hold("b1", "b", 1))
        leaving.cancel()
        await _settled()
        assert not other.done()


async def test_a_client_that_leaves_gives_up_its_place_or_its_turn() -> None:
    async with working() as work:
        running = await work.begin("running", "a")
        waiting = await work.begin("waiting", "a")
        await work.begin("last", "b")
        waiting.cancel()
        await _settled()
        running.cancel()
        await _settled()
        assert work.order == ["running", "last"]


async def test_small_requests_are_bounded_in_bytes_too() -> None:
    async with working(most_bytes=200) as work:
        await work.begin("large", "a", 300)
        largest = await work.begin("a1", "a", 100)
        await work.begin("a2", "a", 80)
        with pytest.raises(OverloadedError):
            await (await work.begin("a3", "a", 90))
        await work.begin("b1", "b", 90)
        with pytest.raises(OverloadedError):
            await largest  # its owner has more waiting
        await work.end("large", "a2", "b1")
        assert work.order == ["large", "a2", "b1"]


async def test_those_that_left_take_no_memory_while_others_wait() -> None:
    async with working() as work:
        await work.begin("running", "a")
        await work.begin("small", "a", 1)
        for number in range(500):
            leaving = await work.begin(f"leaving{number}", "a", 50)
            leaving.cancel()
            await _settled()
        line = work.turns._queues["a"].small
        assert len(line._by_size) < 100
        assert len(line._by_age) < 100
        await work.end("running", "small")
        assert work.order == ["running", "small"]


async def test_a_long_queue_is_served_in_the_order_of_sizes() -> None:
    async with working(2, most_waiting=1000, most_bytes=1_000_000) as work:
        sizes = random.Random(0).sample(range(1, 2000), 600)
        first = await work.begin("first", "a", 1)
        second = await work.begin("second", "a", 1)
        tasks = [await work.begin(str(size), "a", size) for size in sizes]
        gone = [task for task, size in zip(tasks, sizes, strict=True) if size % 7 == 0]
        for task in gone:
            task.cancel()
        await _settled()
        left = [size for size in sizes if size % 7]
        assert work.turns.waiting == len(left)
        for event in work.done.values():
            event.set()
        await asyncio.gather(first, second, *(task for task in tasks if task not in gone))
        small = [int(name) for name in work.order[2:] if int(name) <= 100]
        large = [int(name) for name in work.order[2:] if int(name) > 100]
        assert small == sorted(size for size in left if size <= 100)
        assert large == sorted(size for size in left if size > 100)


async def test_retry_after_is_sent_before_a_turn_has_ended() -> None:
    async with working(most_waiting=1) as work:
        await work.begin("a1", "a")
        await work.begin("a2", "a")
        with pytest.raises(OverloadedError) as refused:
            await (await work.begin("a3", "a"))
        assert refused.value.headers()["retry-after"] == "1"
        await work.end("a1", "a2")


async def test_those_who_have_the_most_bytes_give_way_when_bytes_are_lacking() -> None:
    async with working(most_waiting=100, most_bytes=500) as work:
        await work.begin("running", "z", 1)
        chats = [await work.begin(f"a{number}", "a", 1) for number in range(50)]
        big = [await work.begin(f"b{number}", "b", 100) for number in range(4)]
        await work.begin("c", "c", 90)
        assert not any(task.done() for task in chats)  # the most requests, but few bytes
        with pytest.raises(OverloadedError, match="send less"):
            await next(task for task in big if task.done())
        for event in work.done.values():
            event.set()
        await asyncio.gather(*chats, *(task for task in big if not task.done()))


async def test_who_has_given_way_gives_way_again_only_while_they_have_the_most_bytes() -> None:
    async with working() as work:
        await work.begin("runs", "z")
        several = [await work.begin(f"a{number}", "a", 150) for number in range(3)]
        single = await work.begin("b", "b", 440)
        await work.begin("c", "c", 300)  # one of a's leaves, and then b has more than a
        for rejected in (several.pop(), single):
            with pytest.raises(OverloadedError):
                await rejected
        assert not any(task.done() for task in several)


async def test_no_one_gives_way_in_vain() -> None:
    async with working(most_bytes=1000) as work:
        await work.begin("running", "a", 600)
        others = [await work.begin(owner, owner, 110) for owner in "bcd"]
        with pytest.raises(OverloadedError):  # even without the others there is no room
            await (await work.begin("next", "e", 500))
        assert not any(task.done() for task in others)
        await work.end("running", *"bcd")


class Body:
    """What a request holds while it waits."""


async def test_a_rejected_request_is_freed_though_others_of_its_owner_wait() -> None:
    async with working(most_waiting=2) as work:

        async def hold(name: str, size: int) -> None:
            body = Body()
            held.append(weakref.ref(body))
            await work._hold(name, "a", size)

        held: list[weakref.ref[Body]] = []
        for name in ("a1", "a2", "a3"):
            work.done[name] = asyncio.Event()
        tasks = [asyncio.create_task(hold(name, 10)) for name in ("a1", "a2")]
        tasks.append(asyncio.create_task(hold("a3", 50)))
        await _settled()
        await work.begin("b1", "b")
        with pytest.raises(OverloadedError):
            await tasks.pop()
        await _settled()
        assert held[2]() is None
        assert held[1]() is not None
        await work.end("a1", "a2", "b1")


async def test_many_clients_that_leave_at_once_do_not_hold_the_event_loop() -> None:
    async with working(most_waiting=4096, most_bytes=1 << 30) as work:
        await work.begin("running", "a")
        leaving = []
        for number in range(4000):
            name = str(number)
            work.done[name] = asyncio.Event()
            owner = f"owner{number % 500}"
            leaving.append(asyncio.create_task(work._hold(name, owner, number)))
        await _settled()
        assert work.turns.waiting == 4000
        looked_at = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal looked_at
            looked_at += event == "call"

        for task in leaving:
            task.cancel()
        sys.setprofile(count)
        try:
            await _settled()
        finally:
            sys.setprofile(None)
        assert work.turns.waiting == 0
        assert looked_at < 100 * len(leaving)  # quadratic: thousands for each
        await work.end("running")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


async def test_retry_after_follows_the_work_and_one_slow_turn_hardly_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("service.tenants.turns.time", clock)
    async with working(most_waiting=100) as work:

        async def turns(count: int, start: float, seconds: float) -> None:
            for _ in range(count):
                async with work.turns.turn("a", 1):
                    clock.now += start  # of the process, which does not count
                    with work.turns.timed():
                        clock.now += seconds

        async def retry_after() -> int:
            tasks = [await work.begin(f"a{number}", "a") for number in range(101)]
            with pytest.raises(OverloadedError) as refused:
                await (await work.begin("refused", "a"))
            for event in work.done.values():
                event.set()
            await asyncio.gather(*tasks)
            return int(refused.value.headers()["retry-after"])

        await turns(60, start=1.5, seconds=0.02)
        assert await retry_after() == 3
        await turns(1, start=0, seconds=1.0)
        assert await retry_after() < 5
        await turns(200, start=0, seconds=0.2)
        assert await retry_after() in (20, 21)
        await turns(400, start=0, seconds=10.0)
        assert await retry_after() == 120  # the most


async def test_retry_after_is_sent_once_it_is_known() -> None:
    async with working(most_waiting=1) as work:
        with work.turns.timed():
            pass
        await work.begin("a2", "a")
        await work.begin("a3", "a")
        with pytest.raises(OverloadedError) as refused:
            await (await work.begin("a4", "a"))
        assert refused.value.headers()["retry-after"] == "1"
