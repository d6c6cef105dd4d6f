"""The memory finds tenants and workers again, and is bounded."""

from __future__ import annotations

import os

import pytest

from service.tenants import key_file, limit_memory, tenant_cells
from service.tenants.limit_memory import LimitMemory, LimitMemoryFullError
from service.tenants.tenant_cells import REQUESTS, SECOND, WINDOW


def test_totals_are_added_up_after_a_worker_was_killed_between_two_stores() -> None:
    memory = LimitMemory(None)
    with memory.lock():
        tenant = memory.tenant("team")
        tenant.advance(1000)
        tenant.count_requests(1000, 3)
    memory._cells[limit_memory._DIRTY] = 1
    tenant[REQUESTS] = 99
    with memory.lock():
        assert memory.tenant("team")[REQUESTS] == 3


def test_whichever_tenant_a_killed_worker_was_at_has_its_totals_added_up() -> None:
    memory = LimitMemory(None)
    for _ in range(2):  # a tenant that is new, and one that is known
        with memory.lock():
            other = memory.tenant("other")
        assert memory.hold()
        tenant = memory.tenant("team")
        tenant[REQUESTS] = 99
        memory._unlock(limit_memory._MUTEX)  # as the kernel does when the worker is killed
        with memory.lock():
            assert (tenant[REQUESTS], other[REQUESTS]) == (0, 0)


def test_a_worker_does_not_count_for_the_tenant_that_another_gave_the_place_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 1)
    clock = [1e6]
    descriptor = os.memfd_create("memory-under-test")
    one, other = (LimitMemory(os.dup(descriptor), clock=lambda: clock[0]) for _ in range(2))
    for memory in (one, other):
        with memory.lock():
            memory.tenant("before").count_requests(int(clock[0]), 1)
    clock[0] += WINDOW
    with one.lock():
        one.tenant("after")
    with other.lock():
        assert other.known("before") is None
        assert other.known("after") is not None


def test_a_worker_that_was_killed_while_it_filled_the_file_stops_no_other() -> None:
    descriptor = os.memfd_create("memory-under-test")
    os.ftruncate(descriptor, 1 << 20)
    memory = LimitMemory(descriptor)
    with memory.lock():
        memory.tenant("team").count_requests(0, 1)
    with LimitMemory(os.dup(descriptor)).lock():
        assert memory.tenant("team")[REQUESTS] == 1


def test_workers_of_one_memory_see_the_same_tenants() -> None:
    descriptor = os.memfd_create("memory-under-test")
    one, other = LimitMemory(descriptor), LimitMemory(os.dup(descriptor))
    for alias in ("a", "b" * 32, "c"):
        with one.lock():
            one.tenant(alias).count_requests(0, len(alias))
    with other.lock():
        assert [other.tenant(alias)[REQUESTS] for alias in ("c", "b" * 32, "a")] == [1, 32, 1]


def test_a_tenant_of_whom_nothing_counts_gives_its_place_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 2)
    now, today = 1_000_000, 20_000
    clock = [float(now)]
    memory = LimitMemory(None, clock=lambda: clock[0], wall=lambda: today * 86_400.0)
    with memory.lock():
        for alias in ("idle", "busy"):
            tenant = memory.tenant(alias)
            tenant.advance(now if alias == "busy" else now - WINDOW)
            tenant[limit_memory.DAY] = today if alias == "busy" else today - 1
            tenant.count_requests(tenant[SECOND], 1)
        third = memory.tenant("third")
        assert third[REQUESTS] == 0
        assert memory.tenant("busy")[REQUESTS] == 1
        third.advance(now)
        third.count_requests(now, 1)
        with pytest.raises(LimitMemoryFullError):
            memory.tenant("fourth")
        # Without tokens of this day, a minute is enough.
        memory.tenant("busy").count_requests(now + 2, 1)
        clock[0] += WINDOW
        third.advance(now + WINDOW)  # as when use is shared with other replicas
        assert memory.tenant("fourth")[REQUESTS] == 0
        assert memory.tenant("busy")[REQUESTS] == 2
        assert memory.known("third") is None


@pytest.mark.parametrize("now_first", [True, False])
def test_tokens_of_this_day_keep_a_place_after_a_clock_that_was_wrong(
    monkeypatch: pytest.MonkeyPatch, now_first: bool
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 1)
    asked: list[tuple[str, int, int]] = []

    def is_stored(alias: str, day: int, tokens: int) -> bool:
        asked.append((alias, day, tokens))
        return len(asked) > 1

    memory = LimitMemory(None, clock=lambda: 1e6, wall=lambda: 5 * 86_400.0, is_stored=is_stored)
    with memory.lock():
        team = memory.tenant("team")
        for day in (5, 4) if now_first else (4, 5):
            team.turn_to(day, 0)
            team[limit_memory.USED] = day * 10
        with pytest.raises(LimitMemoryFullError):
            memory.tenant("other")
        monkeypatch.setattr(memory, "_full_until", 0.0)
        assert memory.tenant("other")[limit_memory.LAST_USED] == 0
    assert asked == [("team", 5, 50)] * 2


def test_what_other_replicas_count_keeps_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 1)
    clock = [1e6]
    memory = LimitMemory(None, clock=lambda: clock[0])
    with memory.lock():
        tenant = memory.tenant("team")
        tenant[tenant_cells.OTHERS_REQUESTS], tenant[tenant_cells.OTHERS_AT] = 1, int(clock[0])
        with pytest.raises(LimitMemoryFullError):
            memory.tenant("next")
        clock[0] += WINDOW
        memory.tenant("next")


def test_there_is_room_for_all_tenants_of_a_keys_file() -> None:
    memory = LimitMemory(None)
    with memory.lock():
        for number in range(key_file.MOST_KEYS):
            memory.tenant(f"tenant-{number}").open(1)
        assert len(memory.aliases()) == key_file.MOST_KEYS
        assert memory.tenant("tenant-7").open_requests == 1
