"""The requests that are known to kill engines, shared by the workers of a server.

Each is an empty file, named by the request's fingerprint, in a folder next to the engines' sockets.
So a conviction outlives its worker, and a client whose retry reaches another worker is refused
there too. A worker lists the folder again when its modification time changes; as long as there is
no folder, a check costs one system call.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from observability.logging import get_logger

REMEMBERED_SECONDS = 3600.0
MOST_REMEMBERED = 1024
# Files created within one tick of the kernel's clock give the folder the same time.
_UNSETTLED_SECONDS = 1.0
_DIGEST = re.compile(r"(?:[0-9a-f]{2})+")

_log = get_logger()


class Convictions:
    """Fingerprints of the last hour; the oldest are dropped when there are too many. ``folder``:
    that of all workers; None: they are known to this object only. ``clock``: seconds since
    1970."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._expiry: dict[bytes, float] = {}
        self._unshared: dict[bytes, float] = {}  # of which no file could be made
        self._seen: int | None = None  # the folder's modification time when it was last listed

    def __bool__(self) -> bool:
        """False if there are none, so that no fingerprint is needed."""
        self._look()
        return bool(self._expiry)

    def __contains__(self, digest: bytes) -> bool:
        self._look()
        return self._expiry.get(digest, 0.0) > self._clock()

    def add(self, digest: bytes) -> None:
        self._look()
        now = self._clock()
        for old in [old for old, expiry in self._expiry.items() if expiry <= now]:
            self._drop(old)
        self._expiry.pop(digest, None)
        while len(self._expiry) >= MOST_REMEMBERED:
            self._drop(min(self._expiry, key=self._expiry.__getitem__))
        self._expiry[digest] = now + REMEMBERED_SECONDS
        if self._folder is None:
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = self._folder / digest.hex()
            path.touch(mode=0o600)
            os.utime(path, (now, now))
        except OSError as error:
            self._unshared[digest] = self._expiry[digest]
            _log.warning(
                "other workers do not learn of a request that kills engines", error=str(error)
            )

    def _drop(self, digest: bytes) -> None:
        del self._expiry[digest]
        self._unshared.pop(digest, None)
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / digest.hex()).unlink(missing_ok=True)

    def _look(self) -> None:
        """Take over what other workers added, and forget what they dropped."""
        if self._folder is None:
            return
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._seen:
                return
            with os.scandir(self._folder) as entries:
                found = {
                    bytes.fromhex(entry.name): entry.stat().st_mtime + REMEMBERED_SECONDS
                    for entry in entries
                    if _DIGEST.fullmatch(entry.name)  # and not what a file system puts there
                }
        except OSError:  # there is no folder yet, or a file went meanwhile
            return
        self._expiry = found | self._unshared
        settled = time.time() - changed / 1e9 > _UNSETTLED_SECONDS
        self._seen = changed if settled else None
