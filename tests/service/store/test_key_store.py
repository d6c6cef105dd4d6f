"""Keys in SQLite and PostgreSQL: every server finds what was made, and notices changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from service.errors import StoreUnavailableError
from service.store.key_store import KeyStore, NoSuchKeyError
from service.store.place import store_place
from service.tenants.stored_key import KeyGrant, digest_of, tenant_grants
from tests.service.running_postgres import Postgres
from tests.service.store.stored import execute

TEAM = KeyGrant(alias="team", tokens_per_minute=1000, models=("m\0", "ü"))


@pytest.fixture
async def store(url: str) -> AsyncIterator[KeyStore]:
    made = KeyStore(store_place(url))
    await made.prepare()
    yield made
    await made.close()


async def test_a_key_is_found_as_it_was_made(store: KeyStore) -> None:
    until = time.time() + 60
    made = await store.create(TEAM, until)
    [found] = await store.keys()
    assert found == made.key
    assert (found.digest, found.grant, found.expires) == (digest_of(made.text), TEAM, until)


async def test_a_change_is_told_and_a_use_is_not(store: KeyStore, url: str) -> None:
    told = await store.newer()
    assert told is not None
    revision, keys = told
    assert keys == ()
    assert await store.newer(revision) is None
    other = KeyStore(store_place(url))
    made = await other.create(TEAM)
    told = await store.newer(revision)
    assert told is not None
    assert told[1] == (made.key,)
    await other.note_use({made.key.id: 3.0})
    await other.note_use({made.key.id: 5.0, "key_unknown": 6.0})
    await other.note_use({made.key.id: 4.0})
    await other.close()
    assert await store.newer(told[0]) is None
    assert [key.last_used for key in await store.keys()] == [5.0]


async def test_rotation_makes_a_like_key_and_ends_the_ones_before(store: KeyStore) -> None:
    soon = time.time() + 10
    first, ends_soon = await store.create(TEAM), await store.create(TEAM, soon)
    made = await store.rotate("team", overlap=3600)
    assert made.key.grant == TEAM
    assert made.text not in (first.text, ends_soon.text)
    assert [key.id for key in made.replaced] == [first.key.id, ends_soon.key.id]
    assert made.replaced[0].expires == pytest.approx(time.time() + 3600, abs=60)
    assert made.replaced[1].expires == soon
    assert len(await store.keys()) == 3
    with pytest.raises(NoSuchKeyError):
        await store.rotate("nobody", overlap=0)


async def test_rotation_allows_what_the_newest_key_does(store: KeyStore) -> None:
    newest = KeyGrant(alias="team", tokens_per_minute=5)
    await store.create(TEAM)
    await store.create(newest)
    assert (await store.rotate("team", overlap=3600)).key.grant == newest


async def test_rotation_without_an_overlap_revokes_so_that_no_clock_matters(
    store: KeyStore,
) -> None:
    first, other = await store.create(TEAM), await store.create(TEAM)
    before = await store.keys()
    made = await store.rotate("team", overlap=0)
    assert [key.id for key in made.replaced] == [first.key.id, other.key.id]
    assert not any(key.is_valid(0.0) for key in made.replaced)
    await store.withdraw(made)
    assert (await store.keys())[:2] == before


@pytest.mark.debian
async def test_an_overlap_ends_by_the_clock_of_the_database(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await execute(postgres.url, "CREATE DATABASE skewed")
    store = KeyStore(store_place(postgres.url.replace("/postgres", "/skewed")))
    await store.prepare()
    await store.create(TEAM)
    now = time.time()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + 1200)
        made = await store.rotate("team", overlap=3600)
    [old] = made.replaced
    assert old.expires == pytest.approx(now + 3600, abs=60)
    await store.close()


async def test_the_order_of_an_alias_s_keys_does_not_depend_on_clocks(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await store.create(TEAM)
    with monkeypatch.context() as patch:
        now = time.time()
        patch.setattr("service.tenants.stored_key.time.time", lambda: now - 300)
        rotated = await store.rotate("team", overlap=3600)
        newest = await store.create(KeyGrant(alias="team", tokens_per_minute=5))
        other = await store.create(KeyGrant(alias="late"))
    keys = await store.keys()
    assert [key for key in keys if key.grant.alias == "team"][1:] == [rotated.key, newest.key]
    assert [key.id for key in keys] == [
        *(other.key.id, first.key.id, rotated.key.id, newest.key.id)
    ]
    assert other.key.created == now - 300
    assert tenant_grants(keys, now)["team"].tokens_per_minute == 5


async def test_revocation_ends_one_key_or_all_of_an_alias(store: KeyStore) -> None:
    first, second = await store.create(TEAM), await store.create(TEAM)
    [revoked] = await store.revoke(first.key.id)
    assert revoked.revoked is not None
    [also] = [key for key in await store.revoke("team") if key.id == second.key.id]
    assert not also.is_valid(time.time())
    with pytest.raises(NoSuchKeyError):
        await store.revoke("team")
    assert all(key.revoked for key in await store.keys())


async def test_changes_at_once_are_all_kept(store: KeyStore, url: str) -> None:
    stores = [KeyStore(store_place(url)) for _ in range(3)]
    aliases = [f"a{number}" for number in range(9)]
    await asyncio.gather(
        *(stores[number % 3].create(KeyGrant(alias=alias)) for number, alias in enumerate(aliases))
    )
    assert sorted(key.grant.alias for key in await store.keys()) == aliases
    for one in stores:
        await one.close()


async def test_a_database_that_is_away_is_said_without_its_password() -> None:
    store = KeyStore(store_place("postgresql://user:birdpassword@127.0.0.1:1/none"))
    with pytest.raises(StoreUnavailableError) as error:
        await store.keys()
    assert "birdpassword" not in error.value.message
    await store.close()


async def test_what_was_made_can_be_withdrawn(store: KeyStore) -> None:
    first = await store.create(TEAM)
    await store.rotate("team", overlap=60)
    before = await store.keys()
    made = await store.rotate("team", overlap=1)
    assert {key.id for key in made.replaced} == {key.id for key in before}
    await store.withdraw(made)
    *others, last = await store.keys()
    assert tuple(others) == before
    assert (last.id, last.revoked is None) == (made.key.id, False)
    # What was changed meanwhile stays.
    made = await store.rotate("team", overlap=30)
    await store.rotate(first.key.id, overlap=0)
    after = {key.id: key.expires for key in await store.keys()}
    await store.withdraw(made)
    now = {key.id: key.expires for key in await store.keys()}
    assert now[first.key.id] == after[first.key.id]
