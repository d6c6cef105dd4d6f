"""What replicas learn of each other through a real PostgreSQL."""

from __future__ import annotations

import pytest

from service.store.key_store import KeyStore
from service.store.limit_database import LimitDatabase
from service.store.place import store_place
from service.tenants.limit_ledger import MinuteUse
from service.tenants.limit_memory import MOST_TENANTS
from service.tenants.tenant_cells import OPEN_LEASE, WINDOW
from tests.service.running_postgres import Postgres
from tests.service.store.stored import execute

pytestmark = pytest.mark.debian

TEAM, OTHER = MinuteUse(5, 700, 2), MinuteUse(1, 20, 0)


@pytest.fixture
async def url(postgres: Postgres) -> str:
    keys = KeyStore(store_place(postgres.url))
    await keys.prepare()
    await keys.close()
    await execute(postgres.url, "DELETE FROM quire_limit_use")
    return postgres.url


async def test_each_replica_learns_the_sums_of_the_others(url: str) -> None:
    store = LimitDatabase(store_place(url))
    assert await store.exchange("a", {"team": TEAM, "other": OTHER}) == {}
    assert await store.exchange("b", {"team": TEAM}) == {"team": TEAM, "other": OTHER}
    assert await store.exchange("c", {}) == {"team": MinuteUse(10, 1400, 4), "other": OTHER}
    assert await store.exchange("a", {"team": OTHER}) == {"team": TEAM}
    assert await store.exchange("c", {}) == {"team": MinuteUse(6, 720, 2)}
    assert await store.exchange("b", {}) == {"team": OTHER}
    await store.close()


async def test_as_many_tenants_as_have_limits_are_shared(url: str) -> None:
    store = LimitDatabase(store_place(url))
    used = {f"tenant{number}": MinuteUse(number, 10**12, 1) for number in range(MOST_TENANTS)}
    await store.exchange("a", used)
    assert await store.exchange("b", used) == used
    assert await store.exchange("a", {"tenant1": TEAM}) == used
    assert await store.exchange("b", {}) == {"tenant1": TEAM}
    await store.close()


async def test_a_replica_that_stopped_counts_until_its_minute_is_over(url: str) -> None:
    store = LimitDatabase(store_place(url))
    await store.exchange("gone", {"team": TEAM})
    age = "UPDATE quire_limit_use SET at = now() - interval '{} seconds'"
    await execute(url, age.format(OPEN_LEASE + 1))
    assert await store.exchange("b", {}) == {"team": TEAM._replace(in_progress=0)}
    await execute(url, age.format(WINDOW + 1))
    assert await store.exchange("b", {}) == {}
    await store.close()
