"""Whether the database of the stored responses can be read and written now."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from observability.logging import get_logger
from service.errors import StoreUnavailableError
from service.store.record import StoredResponse

if TYPE_CHECKING:
    from service.store.database import Database

# What is written to learn whether records can be: not less than most of them.
_TRIAL_BYTES = 256 * 1024
AWAY = "The response store is unavailable; retry."
TOO_SLOW = "The response store is too slow at the moment; retry later."
_READ_ONLY = "The response store is read-only at the moment; retry."
# In the log.
_UNAVAILABLE = "response store unavailable"
_UNWRITABLE = "cannot write to the response store; stored responses can still be read"

_log = get_logger()


class StoreWatch(NamedTuple):
    """Callbacks for each change. ``unreadable``, ``unwritable``: whether it is so from now on.
    ``unstored``: an answer that was to be stored is not."""

    unreadable: Callable[[bool], None] = lambda unreadable: None
    unwritable: Callable[[bool], None] = lambda unwritable: None
    unstored: Callable[[], None] = lambda: None


NO_WATCH = StoreWatch()


class StoreCondition:
    """What cannot be read cannot be written either."""

    def __init__(self, watch: StoreWatch, *, is_configured: bool = True) -> None:
        self.readable = self.writable = False
        self.watch = watch
        self._is_configured = is_configured
        self._said = ""  # the error that was logged, until it has ended
        self._is_slow = False

    @property
    def has_failed(self) -> bool:
        """True if nothing was written since the last failure."""
        return bool(self._said)

    @property
    def works(self) -> bool:
        """True if what waits is being written, however slowly."""
        return self.writable or self._is_slow

    def change(self, *, readable: bool, writable: bool) -> None:
        self.readable, self.writable = readable, writable
        self.watch.unreadable(not readable)
        self.watch.unwritable(not writable)

    def require(self, *, writable: bool) -> None:
        """Raise StoreUnavailableError unless the store can be read and, if wanted, written."""
        if not self.readable:
            raise StoreUnavailableError(AWAY)
        if writable and not self.writable:
            raise StoreUnavailableError(TOO_SLOW if self._is_slow else _READ_ONLY)

    def note_unstored(self) -> None:
        if self._is_configured:
            self.watch.unstored()

    def slow(self) -> None:
        """Accept no more until all that waits is written, because a write took too long."""
        if self.writable:
            self._is_slow = True
            self.change(readable=self.readable, writable=False)
            _log.warning("the response store is too slow")

    def keep_up(self) -> None:
        """All that waited is written."""
        if self._is_slow:
            self._is_slow = False
            self.change(readable=self.readable, writable=True)

    def fail(self, reason: str, *, readable: bool) -> None:
        """Nothing can be written. Logged once for as long as it lasts."""
        self._is_slow = False
        self.change(readable=readable, writable=False)
        said = _UNWRITABLE if readable else _UNAVAILABLE
        if self._said != said:
            _log.error(said, error=reason)
            self._said = said

    def recover(self, backend: str) -> None:
        """The store can be read and written again."""
        if self.writable:
            return
        self.change(readable=True, writable=True)
        self._said = ""
        _log.info("response store opened", backend=backend)


async def can_be_read(database: Database | None, error: Exception) -> bool:
    """``error``: what it has just failed with. A database that does not answer is not queried
    again: readers would wait, too."""
    if database is None or isinstance(error, TimeoutError | ConnectionError):
        return False
    try:
        await database.find("")
    except Exception:
        return False
    return True


async def try_writing(database: Database) -> None:
    """Store a record of no owner, and delete it. In two transactions: within one, a full disk need
    not be noticed. If the second fails, the record has expired. Raises what the database does."""
    name = f"trial_{secrets.token_hex(8)}"
    trial = StoredResponse(
        id=name,
        owner="",
        created_at=0,
        expires_at=1,
        status="completed",
        body=os.urandom(_TRIAL_BYTES),
        input=b"",
        context=b"",
    )
    await database.write([trial], (), lease=0)
    await database.remove([name])
