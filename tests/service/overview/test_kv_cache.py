from __future__ import annotations

import asyncio
import struct
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engine.inspected import (
    CACHED,
    FREE,
    BlockHolder,
    Inspect,
    Inspected,
    KnownPrefix,
    KvState,
    PrefixState,
)
from observability.admin_api import BlockRun, Owner
from service.engine.inspections import Inspections, NoInspectionError
from service.overview.kv_cache import KvCache, KvCaches


def state(runs: list[tuple[int, int, int]]) -> KvState:
    return KvState(
        blocks=sum(count for _, count, _ in runs),
        block_size=16,
        blocks_each=1,
        active=5,
        cached=2,
        free=3,
        holders=(BlockHolder("r1", 4, 60), BlockHolder("r2", 2, 20)),
        runs=b"".join(struct.pack("<3i", *run) for run in runs),
        evictions=7,
        preemptions=1,
    )


class Engine:
    """Answers at once, unless it is in a long step."""

    def __init__(self) -> None:
        self.asked: list[Inspect] = []
        self.is_busy = False
        self.kv = state([(0, 3, 0), (1, 2, 1), (CACHED, 2, 0), (FREE, 3, 0)])
        self.inspections = Inspections(self.send)

    def send(self, message: Inspect) -> bool:
        self.asked.append(message)
        if not self.is_busy:
            asyncio.get_running_loop().call_soon(self.answer, message)
        return True

    def answer(self, asked: Inspect) -> None:
        prefixes = PrefixState(
            prefixes=(KnownPrefix(None, 32, 1, 5, time.monotonic() - 10, "r1"),),
            cached_tokens=320,
            left_out=4,
        )
        self.inspections.answered(
            Inspected(
                number=asked.number,
                time=time.monotonic(),
                kv=self.kv if asked.kv else None,
                prefixes=prefixes if asked.prefixes else None,
            )
        )

    def cache(self) -> KvCache:
        live: Any = {"r1": SimpleNamespace(key="bob"), "r3": SimpleNamespace(key="eve")}
        return KvCache(self.inspections, live)


async def test_the_map_names_the_keys_of_those_who_hold_blocks() -> None:
    found = await Engine().cache().map()
    assert found.owners == (Owner("r1", "bob", 4, 60), Owner("r2", None, 2, 20))
    assert found.runs == (
        BlockRun(0, 3),
        BlockRun(1, 2, True),
        BlockRun(-1, 2),
        BlockRun(-2, 3),
    )
    assert (found.blocks, found.active, found.cached, found.free) == (10, 5, 2, 3)
    assert (found.evictions, found.preemptions, found.blocks_each) == (7, 1, 1)
    assert abs(found.time - time.time()) < 5


async def test_the_engine_is_asked_once_for_all_who_look_at_the_same_time() -> None:
    engine = Engine()
    cache = engine.cache()
    maps = await asyncio.gather(*(cache.map() for _ in range(20)))
    assert len(engine.asked) == 1
    assert all(one is maps[0] for one in maps)


async def test_during_a_long_step_the_last_map_is_shown_with_its_age() -> None:
    engine = Engine()
    cache = engine.cache()
    first = await cache.map()
    engine.is_busy = True
    cache._map = first = _older(first)
    assert await cache.map(timeout=0.01) is first
    assert time.time() - first.time > 1


def _older(known: Any) -> Any:
    return msgspec.structs.replace(known, time=known.time - 3)


async def test_without_any_map_there_is_an_error() -> None:
    engine = Engine()
    engine.is_busy = True
    with pytest.raises(NoInspectionError):
        await engine.cache().map(timeout=0.01)


async def test_a_long_map_is_made_in_pieces() -> None:
    engine = Engine()
    engine.kv = state([(number % 2, 1, 0) for number in range(10_000)])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await engine.cache().map()
    counting.cancel()
    assert len(found.runs) == 10_000
    assert turns >= 5


async def test_the_prefixes_have_wall_clock_times() -> None:
    found = await Engine().cache().prefixes(50)
    (one,) = found.prefixes
    assert (one.parent, one.tokens, one.holders, one.hits, one.request_id) == (None, 32, 1, 5, "r1")
    assert 9 < time.time() - one.last_used < 60
    assert (found.cached_tokens, found.left_out) == (320, 4)


async def test_maps_that_somebody_saw_are_kept() -> None:
    cache = Engine().cache()
    assert cache.history.times().times == ()
    found = await cache.map()
    assert cache.history.times().times == (found.time,)
    assert await cache.history.at(found.time) == found


async def test_each_engine_has_its_own_cache() -> None:
    first, second = Engine(), Engine()
    caches = KvCaches([first.inspections, second.inspections], {})
    assert len(caches) == 2
    second.kv = msgspec.structs.replace(second.kv, evictions=77)
    assert (await caches.of(1).map()).evictions == 77
    assert (await caches.of(0).map()).evictions != 77
    with pytest.raises(NoInspectionError, match="there is no engine 2, only 0 to 1"):
        caches.of(2)
