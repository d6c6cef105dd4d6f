"""API keys in the database of the stored responses.

The database's libraries take long to load, so they are loaded in a thread, on first use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from service.errors import StoreUnavailableError
from service.store.place import StorePlace
from service.tenants.stored_key import KeyGrant, StoredKey, named, new_key

if TYPE_CHECKING:
    from service.store.key_database import KeyDatabase

_NO_REVISION = -1


class NoSuchKeyError(LookupError):
    """No key has this id or alias, or none that could be changed so; the message says which."""


class MadeKey(NamedTuple):
    """``text``: the key itself, which is not stored. ``replaced``: keys that it takes
    the place of, with the time at which they end."""

    key: StoredKey
    text: str
    replaced: tuple[StoredKey, ...] = ()


class KeyStore:
    """Each method raises StoreUnavailableError when the database does not respond."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._database: KeyDatabase | None = None
        self._loading = asyncio.Lock()

    async def prepare(self) -> None:
        """Run the database's missing migrations. Servers do this by themselves."""
        async with self._asked() as database:
            await database.bring_up_to_date()

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    async def keys(self) -> tuple[StoredKey, ...]:
        """Return all keys, the oldest first, also those that have ended."""
        async with self._asked() as database:
            return await database.keys()

    async def newer(self, revision: int = _NO_REVISION) -> tuple[int, tuple[StoredKey, ...]] | None:
        """Return all keys and the revision they have, or None if that is still ``revision``."""
        async with self._asked() as database:
            found = await database.revision()
            return None if found == revision else (found, await database.keys())

    async def create(self, grant: KeyGrant, expires: float | None = None) -> MadeKey:
        """Raises ValueError for an alias or a time that cannot be."""
        key, text = new_key(grant, expires)
        async with self._asked() as database:
            await database.add(key)
        return MadeKey(key, text)

    async def rotate(self, name: str, *, overlap: float, expires: float | None = None) -> MadeKey:
        """Make another key that allows what the newest one of this id or alias does. All of them
        end ``overlap`` seconds from now, or before if they would. Raises NoSuchKeyError,
        ValueError."""
        now = time.time()
        async with self._asked() as database:
            valid = [key for key in named(await database.keys(), name) if key.is_valid(now)]
            if not valid:
                raise NoSuchKeyError(f"There is no valid key with the id or alias '{name[:64]}'.")
            key, text = new_key(valid[-1].grant, expires)
            ids = [one.id for one in valid]
            replaced = await database.add(key, ending=ids, at=now + overlap)
        return MadeKey(key, text, replaced)

    async def revoke(self, name: str) -> tuple[StoredKey, ...]:
        """End the key of this id, or all of this alias, at once. Raises NoSuchKeyError."""
        async with self._asked() as database:
            found = named(await database.keys(), name)
            ids = [key.id for key in found if key.revoked is None]
            if not ids:
                raise NoSuchKeyError(
                    f"There is no key with the id or alias '{name[:64]}' that could be revoked."
                )
            return await database.revoke(ids, time.time())

    async def note_use(self, times: Mapping[str, float]) -> None:
        async with self._asked() as database:
            await database.note_use(times)

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[KeyDatabase]:
        async with self._loading:
            if self._database is None:
                self._database = await asyncio.to_thread(_load, self._place)
        try:
            yield self._database
        except self._database.FAILURES as error:
            # What the driver says may show values.
            kind = type(getattr(error, "orig", None) or error).__name__
            raise StoreUnavailableError(
                f"The database of the API keys does not respond ({kind}); retry."
            ) from error


def _load(place: StorePlace) -> KeyDatabase:
    from service.store.key_database import KeyDatabase

    return KeyDatabase(place)
