"""The number that changes with the keys, also where the database has lost changes."""

from __future__ import annotations

from pathlib import Path

import pytest

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
