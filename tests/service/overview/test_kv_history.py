from __future__ import annotations

import os

from observability.admin_api import BlockRun, KvMap, Owner
from service.overview.kv_history import GRAIN_SECONDS, KV_HISTORY_SECONDS, KvHistory

HOUR = KV_HISTORY_SECONDS


def seen(at: float, owner: str = "r1") -> KvMap:
    return KvMap(at, 8, 16, 3, 0, 5, (BlockRun(0, 3, True),), (Owner(owner, "bob", 3, 40),))


async def test_a_map_is_found_by_any_time_until_the_next() -> None:
    history = KvHistory(clock=lambda: 100.0)
    first, second = seen(10.0), seen(20.0, "r2")
    await history.keep(first)
    await history.keep(second)
    assert history.times().times == (10.0, 20.0)
    assert await history.at(9.9) is None
    assert await history.at(10.0) == first
    assert await history.at(19.9) == first
    assert await history.at(1e9) == second


async def test_of_a_few_seconds_one_is_kept() -> None:
    history = KvHistory(clock=lambda: 100.0)
    for at in (10.0, 10.5, 10.0 + GRAIN_SECONDS - 0.1, 10.0 + GRAIN_SECONDS):
        await history.keep(seen(at))
    assert history.times().times == (10.0, 10.0 + GRAIN_SECONDS)


async def test_after_an_hour_it_is_forgotten() -> None:
    now = 100.0
    history = KvHistory(clock=lambda: now)
    await history.keep(seen(100.0))
    await history.keep(seen(200.0))
    now = 100.0 + HOUR + 1
    assert history.times().times == (200.0,)
    now = 200.0 + HOUR + 1
    assert await history.at(1e9) is None
    assert history.bytes == 0


async def test_maps_are_kept_after_the_clock_was_set_back() -> None:
    now = 10_000.0
    history = KvHistory(clock=lambda: now)
    for at in (9_000.0, 9_990.0, 9_998.0):
        await history.keep(seen(at))
    now -= 500.0
    again = seen(9_498.0, "r2")
    await history.keep(again)
    assert history.times().times == (9_000.0, 9_498.0)
    assert await history.at(9_499.0) == again
    now = 9_498.0 + HOUR + 1
    assert history.times().times == ()
    assert history.bytes == 0


async def test_memory_is_bounded() -> None:
    history = KvHistory(most_bytes=10_000, clock=lambda: 100.0)
    for number in range(50):
        await history.keep(seen(100.0 + 10 * number, os.urandom(500).hex()))
        assert history.bytes <= 10_000
    assert 5 < len(history.times().times) < 50
    assert history.times().times[-1] == 590.0
