"""The feed: one producer, the same bytes for all, slow readers are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from observability.admin_api import BlockRun, Frame, KvMap
from service.admin import feed as feed_module
from service.admin.feed import MOST_FEED_READERS, Feed
from service.admin.problem import ProblemError

MAP = KvMap(1.0, 4, 16, 1, 1, 2, (BlockRun(0, 1, True), BlockRun(-2, 3)), ())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "FRAME_SECONDS", 0.01)
    monkeypatch.setattr(feed_module, "KV_SECONDS", 0.01)


class Source:
    def __init__(self) -> None:
        self.frames = self.maps = 0

    async def frame(self) -> Frame:
        self.frames += 1
        return Frame(sample={"running": float(self.frames)})

    async def kv_map(self, engine: int) -> KvMap | None:
        self.maps += 1
        return msgspec.structs.replace(MAP, evictions=engine)


async def taken(stream: AsyncGenerator[bytes, None], count: int) -> list[bytes]:
    return [await anext(stream) for _ in range(count)]


def test_one_key_cannot_take_all_places() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        greedy = [feed.follow("mallory", kv=None) for _ in range(MOST_FEED_READERS)]
        for stream in greedy:
            await anext(stream)
        feed.make_room("ann")
        stream = feed.follow("ann", kv=None)
        await anext(stream)
        assert len(feed) == MOST_FEED_READERS
        async for _ in greedy[0]:  # the oldest: it ends
            pass
        await anext(greedy[1])
        with pytest.raises(ProblemError):
            feed.make_room("mallory")
        for one in (*greedy, stream):
            await one.aclose()

    asyncio.run(run())


def test_readers_who_come_at_once_do_not_get_more_places_than_there_are() -> None:
    """All are let in before the first has begun to read."""

    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        for _ in range(MOST_FEED_READERS + 4):
            feed.make_room("ann")
        streams = [feed.follow("ann", kv=None) for _ in range(MOST_FEED_READERS + 4)]
        first = [await anext(stream, b"") for stream in streams]
        assert len(feed) == MOST_FEED_READERS
        assert first[MOST_FEED_READERS:] == [b""] * 4  # ended: when they come back, it is with 429
        for stream in streams:
            await stream.aclose()

    asyncio.run(run())


def test_keys_with_equal_shares_do_not_displace_each_other() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        streams = [feed.follow(f"key{n % 8}", kv=None) for n in range(MOST_FEED_READERS)]
        for stream in streams:
            await anext(stream)
        for alias in ("key0", "key7"):
            with pytest.raises(ProblemError):
                feed.make_room(alias)
        for stream in streams:
            await stream.aclose()

    asyncio.run(run())


def test_sixteen_readers_get_the_same_bytes_of_one_producer() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        streams = [feed.follow("ann", kv=None) for _ in range(MOST_FEED_READERS)]
        firsts = await asyncio.gather(*(taken(stream, 1) for stream in streams))
        assert len(feed) == MOST_FEED_READERS
        with pytest.raises(ProblemError) as caught:
            feed.make_room("ann")
        assert caught.value.status == 429
        got = await asyncio.gather(*(taken(stream, 5) for stream in streams))
        assert all(messages == got[0] for messages in got)
        assert source.frames <= 8
        assert source.maps == 0
        assert firsts[0][0].startswith(b'data: {"overview":null')
        for stream in streams:
            await stream.aclose()
        feed.make_room("ann")

    asyncio.run(run())


def test_nothing_is_made_without_readers() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        assert source.frames == 0
        stream = feed.follow("ann", kv=0)
        await taken(stream, 2)
        await stream.aclose()
        made = (source.frames, source.maps)
        await asyncio.sleep(0.05)
        assert (source.frames, source.maps) == made

    asyncio.run(run())


def test_after_a_slow_reader_was_cut_off_there_is_one_producer_at_most() -> None:
    def producers() -> int:
        return sum(task.get_name().startswith("admin-feed") for task in asyncio.all_tasks())

    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        slow = feed.follow("ann", kv=0)
        await anext(slow)
        while len(feed):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert producers() == 0
        other = feed.follow("ann", kv=None)
        await taken(other, 3)
        async for _ in slow:  # it notices only now
            pass
        await taken(other, 3)
        assert producers() == 1
        await other.aclose()
        await asyncio.sleep(0)
        assert producers() == 0

    asyncio.run(run())


def test_maps_go_only_to_those_who_want_them() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        plain, mapped = feed.follow("ann", kv=None), feed.follow("ann", kv=0)
        both = await asyncio.gather(taken(plain, 6), taken(mapped, 6))
        frames = [
            [msgspec.json.decode(one.removeprefix(b"data: "), type=Frame) for one in got]
            for got in both
        ]
        assert all(frame.kv is None for frame in frames[0])
        assert MAP in [frame.kv for frame in frames[1]]
        await plain.aclose()
        await mapped.aclose()

    asyncio.run(run())


def test_maps_are_of_the_engine_that_a_reader_wants() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        streams = [feed.follow("ann", kv=engine) for engine in (0, 1, 1)]
        each = await asyncio.gather(*(taken(stream, 8) for stream in streams))
        for engine, got in zip((0, 1, 1), each, strict=True):
            frames = [msgspec.json.decode(one[6:], type=Frame) for one in got]
            assert {frame.kv.evictions for frame in frames if frame.kv} == {engine}
        await streams[0].aclose()
        assert list(feed._kv_tasks) == [1]
        for stream in streams[1:]:
            await stream.aclose()
        assert not feed._kv_tasks

    asyncio.run(run())


def test_a_reader_that_does_not_read_is_cut_off_and_the_others_go_on() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        slow, quick = feed.follow("ann", kv=None), feed.follow("ann", kv=None)
        await asyncio.gather(taken(slow, 1), taken(quick, 1))
        while len(feed) == 2:
            await anext(quick)
        rest = [message async for message in slow]
        assert len(rest) <= 9
        assert await anext(quick)
        await quick.aclose()
        assert len(feed) == 0

    asyncio.run(run())


def test_a_second_that_fails_does_not_end_the_feed() -> None:
    async def run() -> None:
        source = Source()

        async def frame() -> Frame:
            made = await source.frame()
            if source.frames == 2:
                raise RuntimeError("defect")
            return made

        stream = Feed(frame, source.kv_map).follow("ann", kv=None)
        got = await taken(stream, 2)
        assert b'"running":1' in got[0]
        assert b'"running":3' in got[1]
        await stream.aclose()

    asyncio.run(run())


def test_closing_ends_the_readers() -> None:
    async def run() -> list[bytes]:
        source = Source()
        feed = Feed(source.frame, source.kv_map)
        stream = feed.follow("ann", kv=0)
        await taken(stream, 1)
        feed.close()
        return [message async for message in stream]

    asyncio.run(asyncio.wait_for(run(), 10))
