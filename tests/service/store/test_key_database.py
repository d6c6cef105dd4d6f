"""The number that changes with the keys, also where the database has lost changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from service.store.key_database import KeyDatabase
from service.store.place import store_place
from service.tenants.stored_key import KeyGrant, new_key
from tests.service.store.stored import execute


async def test_the_number_changes_with_each_change_only(url: str) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    numbers = [await database.revision()]
    key, _ = new_key(KeyGrant(alias="team"))
    await database.add(key)
    numbers.append(await database.revision())
    await database.note_use({key.id: 1.0})
    numbers.append(await database.revision())
    second, _ = new_key(KeyGrant(alias="team"))
    _, [ended] = await database.add(second, ending=[key.id], at=7.0)
    numbers.append(await database.revision())
    await database.revoke([key.id], 5.0)
    numbers.append(await database.revision())
    assert numbers[1] == numbers[2]
    assert len({*numbers}) == len(numbers) - 1
    assert ended.expires == 7.0
    [again] = await database.revoke([key.id], 6.0)
    assert again.revoked == 5.0  # it was before
    await database.close()


async def test_a_change_after_a_failover_that_lost_one_has_a_number_that_never_was(
    url: str,
) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    before = await database.revision()
    await execute(url, "CREATE TABLE backup AS SELECT revision FROM quire_key_state")
    lost, _ = new_key(KeyGrant(alias="lost"))
    await database.add(lost)
    read = await database.revision()
    await execute(url, "DELETE FROM quire_keys")
    await execute(url, "UPDATE quire_key_state SET revision = (SELECT revision FROM backup)")
    key, _ = new_key(KeyGrant(alias="team"))
    await database.add(key)
    assert await database.revision() not in (before, read)
    # A server of an earlier version, in a rolling update, adds 1.
    await execute(url, "UPDATE quire_key_state SET revision = 4611686018427387903")
    await execute(url, "UPDATE quire_key_state SET revision = revision + 1")
    assert await database.revision() == 2**62
    await database.close()


@pytest.mark.parametrize("at", [5.0, 9.0])
async def test_a_key_that_was_revoked_meanwhile_is_not_among_those_that_a_new_one_ends(
    url: str, at: float
) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    keys = [new_key(KeyGrant(alias="team"))[0] for _ in range(3)]
    for key in keys[:2]:
        await database.add(key)
    await database.revoke([keys[0].id], at)
    _, ended = await database.add(
        keys[2], ending=[key.id for key in keys[:2]], at=7.0, revokes=True
    )
    assert [(key.id, key.revoked) for key in ended] == [(keys[1].id, 7.0)]
    await database.close()


async def test_a_new_key_ends_those_before_it_no_later_than_they_would_have(url: str) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    ids = []
    for expires in (None, 100.0, 3.0):
        key = structs.replace(new_key(KeyGrant(alias="team"))[0], expires=expires)
        await database.add(key)
        ids.append(key.id)
    await database.add(new_key(KeyGrant(alias="team"))[0], ending=ids, at=7.0)
    ended = {key.id: key.expires for key in await database.keys()}
    assert [ended[name] for name in ids] == [7.0, 7.0, 3.0]
    await database.close()


async def test_a_key_that_was_changed_meanwhile_does_not_get_its_end_back(url: str) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    first, second, third = (new_key(KeyGrant(alias="team"))[0] for _ in range(3))
    await database.add(first)
    _, [ended] = await database.add(second, ending=[first.id], at=7.0)
    await database.add(third, ending=[first.id], at=5.0)
    await database.revoke([second.id], 1.0, restored=[(ended, first)])
    found = {key.id: key for key in await database.keys()}
    assert found[first.id].expires == 5.0
    assert found[second.id].revoked == 1.0
    await database.close()


async def test_of_two_keys_made_at_one_moment_the_one_added_last_is_the_newest(url: str) -> None:
    database = KeyDatabase(store_place(url))
    await database.bring_up_to_date()
    keys = [
        structs.replace(new_key(KeyGrant(alias="team"))[0], id=name, created=1e9)
        for name in ("key_b", "key_a", "key_c")
    ]
    for key in keys:
        await database.add(key)
    assert [key.id for key in await database.keys()] == ["key_b", "key_a", "key_c"]
    await database.close()


async def test_keys_of_a_file_that_was_replaced_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    database = KeyDatabase(store_place(f"sqlite:///{file}"))
    await database.bring_up_to_date()
    assert await database.keys() == ()
    file.unlink()
    with pytest.raises(KeyDatabase.FAILURES, match=r"was deleted or replaced"):
        await database.revision()
    with pytest.raises(KeyDatabase.FAILURES, match=r"was deleted or replaced"):
        await database.bring_up_to_date()
    assert not file.exists()
    await database.close()
