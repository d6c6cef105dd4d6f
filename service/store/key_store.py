"""API keys in the database of the stored responses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from service.store.lazily import Lazily
from service.store.place import StorePlace
from service.tenants.stored_key import KeyGrant, StoredKey, named, new_key

if TYPE_CHECKING:
    from service.store.key_database import KeyDatabase

_NO_REVISION = -1


class NoSuchKeyError(LookupError):
    """No key has this id or alias, or none that could be changed so; the message says which."""


class MadeKey(NamedTuple):
    """``text``: the key itself, which is not stored. ``replaced``: keys that it takes
    the place of, with the time at which they end; ``before``: the same as they were."""

    key: StoredKey
    text: str
    replaced: tuple[StoredKey, ...] = ()
    before: tuple[StoredKey, ...] = ()


class KeyStore:
    """Each method raises StoreUnavailableError when the database does not respond. ``place``: where
    the keys are, in words."""

    def __init__(self, place: StorePlace) -> None:
        # Without the URL, which may hold a password.
        self.place = "the PostgreSQL database" if place.file is None else str(place.file)
        self._database: Lazily[KeyDatabase] = Lazily(
            lambda: _load(place), "database of the API keys"
        )

    async def prepare(self) -> None:
        """Run the database's missing migrations. Servers do this by themselves."""
        async with self._database.asked() as database:
            await database.bring_up_to_date()

    async def close(self) -> None:
        await self._database.close()

    async def keys(self) -> tuple[StoredKey, ...]:
        """Return all keys, the oldest first, also those that have ended."""
        async with self._database.asked() as database:
            return await database.keys()

    async def newer(self, revision: int = _NO_REVISION) -> tuple[int, tuple[StoredKey, ...]] | None:
        """Return all keys and the revision they have, or None if that is still ``revision``."""
        async with self._database.asked() as database:
            found = await database.revision()
            return None if found == revision else (found, await database.keys())

    async def create(self, grant: KeyGrant, expires: float | None = None) -> MadeKey:
        """Raises ValueError for an alias or a time that cannot be."""
        key, text = new_key(grant, expires)
        async with self._database.asked() as database:
            key, _ = await database.add(key)
        return MadeKey(key, text)

    async def rotate(self, name: str, *, overlap: float, expires: float | None = None) -> MadeKey:
        """Make another key that allows what the newest one of this id or alias does. All of them
        end ``overlap`` seconds from now, or before if they would; without an overlap they are
        revoked. Raises NoSuchKeyError, ValueError."""
        async with self._database.asked() as database:
            now = await database.now()
            valid = [key for key in named(await database.keys(), name) if key.is_valid(now)]
            if not valid:
                raise NoSuchKeyError(f"There is no valid key with the id or alias '{name[:64]}'.")
            key, text = new_key(valid[-1].grant, expires)
            ids = [one.id for one in valid]
            at, revokes = now + overlap, overlap <= 0
            key, replaced = await database.add(key, ending=ids, at=at, revokes=revokes)
        return MadeKey(key, text, replaced, tuple(valid))

    async def withdraw(self, made: MadeKey) -> None:
        """Revoke a key that was just made, and give those that it replaced their ends back, unless
        they have been changed meanwhile."""
        before = {key.id: key for key in made.before}
        restored = [(key, before[key.id]) for key in made.replaced]
        async with self._database.asked() as database:
            await database.revoke([made.key.id], time.time(), restored=restored)

    async def revoke(self, name: str) -> tuple[StoredKey, ...]:
        """End the key of this id, or all of this alias, at once. Raises NoSuchKeyError."""
        async with self._database.asked() as database:
            found = named(await database.keys(), name)
            ids = [key.id for key in found if key.revoked is None]
            if not ids:
                raise NoSuchKeyError(
                    f"There is no key with the id or alias '{name[:64]}' that could be revoked."
                )
            return await database.revoke(ids, time.time())

    async def note_use(self, times: Mapping[str, float]) -> None:
        async with self._database.asked() as database:
            await database.note_use(times)


def _load(place: StorePlace) -> KeyDatabase:
    from service.store.key_database import KeyDatabase

    return KeyDatabase(place)
