"""Keeps a server's API keys as they are in the store and in the keys file, while it runs."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from observability.logging import get_logger
from service.errors import StoreUnavailableError
from service.serving.keys import KeyRing
from service.store.key_store import KeyStore
from service.tenants.key_file import read_key_file
from service.tenants.stored_key import StoredKey

# A change takes effect within this and the time of a query.
_LOOK_SECONDS = 2.0
# Requests with unknown keys cause at most one look in this time, which they await no longer than
# this once it is due.
_EARLY_SECONDS = 1.0
_MOST_AWAITING = 256  # requests that await a look: anyone can send unknown keys
_FIRST_SECONDS = 0.1
# How coarse the time is at which a key was last used.
_USE_SECONDS = 60.0
_Keys = tuple[StoredKey, ...]

_log = get_logger()


class KeySources:
    """``file`` and ``store``: None if no keys come from there. ``is_up``: the store has its tables.
    ``changed`` is called after each change, when ``ring`` knows it. ``on_away`` hears at each look
    whether the store's keys cannot be read."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        file: Path | None = None,
        store: KeyStore | None = None,
        is_up: Callable[[], bool] = lambda: True,
        changed: Callable[[], None] = lambda: None,
        on_away: Callable[[bool], None] = lambda away: None,
    ) -> None:
        self._ring = ring
        self._file = file
        self.store = store
        self._is_up = is_up
        self._changed = changed
        self._on_away = on_away
        self._from_file: _Keys | None = None
        self._from_store: _Keys | None = None
        self._file_mark: object = None
        self._said_unreadable: int | None = None  # the error number
        self._looking = asyncio.Lock()
        self._early: asyncio.Task[None] | None = None
        self._next_early = -math.inf
        self._awaiting = 0
        self._revision = -1
        self._next_end = math.inf  # of a key
        self._said_away = False
        self._note_at = time.monotonic() + _USE_SECONDS
        self._unwritten: dict[str, float] = {}
        self._tell()
        if self._file_has_changed():
            self._read_file()

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await self._look_or_report()
            waits = self.store is not None and self._from_store is None
            await asyncio.sleep(_FIRST_SECONDS if waits else _LOOK_SECONDS)

    @property
    def keys(self) -> _Keys:
        """All keys that are known, those of the file first."""
        return (*(self._from_file or ()), *(self._from_store or ()))

    async def look_early(self) -> None:
        """Look as soon as may be, for a key that is not known. Calls in a row share a look, and one
        that takes long is not awaited."""
        if (self._file is None and self.store is None) or self._said_away:
            return
        if self._awaiting >= _MOST_AWAITING:
            return
        wait = max(0.0, self._next_early - time.monotonic())
        if self._early is None or self._early.done():
            self._early = asyncio.create_task(self._look_after(wait))
        self._awaiting += 1
        try:
            await asyncio.wait((self._early,), timeout=wait + _EARLY_SECONDS)
        finally:
            self._awaiting -= 1

    async def _look_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._next_early = time.monotonic() + _EARLY_SECONDS
        await self._look_or_report()

    async def _look_or_report(self) -> None:
        try:
            await self.look()
        except Exception:  # a bug: the keys that are known stay
            _log.exception("the API keys could not be looked at")

    async def look(self) -> None:
        """Take over what has changed."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        # In threads, because of thousands of keys it takes long.
        if self._file_has_changed():
            await asyncio.to_thread(self._read_file)
        if time.time() >= self._next_end:  # the limits may be those of another key now
            await asyncio.to_thread(self._tell)
        if self.store is None:
            return
        if not self._is_up():  # the store says so itself
            self._on_away(True)
            return
        try:
            await self._look_at_store(self.store)
            self._said_away = False
            self._on_away(False)
        except StoreUnavailableError as error:
            if not self._said_away:
                _log.error("the API keys cannot be read; the last known stay", error=error.message)
            self._said_away = True
            self._on_away(True)

    async def close(self) -> None:
        if self._early is not None:
            self._early.cancel()
        if self.store is None:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._note_use(self.store)
        except (StoreUnavailableError, TimeoutError):
            pass
        await self.store.close()

    async def _look_at_store(self, store: KeyStore) -> None:
        found = await store.newer(self._revision)
        if found is not None:
            self._revision, self._from_store = found
            await asyncio.to_thread(self._tell, "store", self._from_store)
        if time.monotonic() >= self._note_at:
            self._note_at = time.monotonic() + _USE_SECONDS
            # A store that cannot be written says so itself, and its keys can be read.
            with suppress(StoreUnavailableError):
                await self._note_use(store)

    async def _note_use(self, store: KeyStore) -> None:
        self._unwritten |= self._ring.take_use()
        known = {key.id for key in self._from_store or ()}
        used = {key: moment for key, moment in self._unwritten.items() if key in known}
        if used:
            await store.note_use(used)
        self._unwritten = {}

    def _file_has_changed(self) -> bool:
        if self._file is None:
            return False
        before, self._file_mark = self._file_mark, _mark_of(self._file)
        return self._file_mark != before

    def _read_file(self) -> None:
        """A file that cannot be used changes nothing, and is reported once."""
        assert self._file is not None
        try:
            found = read_key_file(self._file, may_be_empty=not self._from_file)
        except OSError as error:
            self._file_mark = None  # the cause may end without a change of the file
            if error.errno != self._said_unreadable:
                self._report_file(error.strerror or str(error))
            self._said_unreadable = error.errno
            return
        except ValueError as error:
            self._report_file(str(error))
            return
        self._said_unreadable = None
        if self._from_file and not found:
            _log.warning("the keys file lists no keys: all its keys are now invalid")
        self._from_file = found
        self._tell("file", found)

    def _report_file(self, reason: str) -> None:
        _log.error(
            "the keys file cannot be used; the last good keys stay",
            file=str(self._file),
            error=reason,
        )

    def _tell(self, source: str = "", keys: _Keys = ()) -> None:
        missing = []
        if self._file is not None and self._from_file is None:
            missing.append("the keys file")
        if self.store is not None and self._from_store is None:
            missing.append("the store")
        now = time.time()
        ends = [key.expires for key in self.keys if key.expires is not None and key.is_valid(now)]
        self._next_end = min(ends, default=math.inf)
        self._ring.replace(self.keys, missing=" and ".join(missing))
        self._changed()
        if source:
            valid = [key for key in keys if key.is_valid(now)]
            tenants = {key.grant.alias for key in valid}
            _log.info("API keys read", source=source, valid=len(valid), tenants=len(tenants))


def _mark_of(file: Path) -> object:
    """Return what changes when the file does, also when a mounted Secret's folder is exchanged."""
    try:
        found = os.stat(file)
    except OSError as error:
        return error.errno
    # A change of its mode changes only the last.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
