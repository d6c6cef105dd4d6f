"""Notices that SQLite's file was deleted or replaced while the server has it open.

SQLite would keep reading and writing the file that no longer has a name. Nor can the new one be
opened instead: SQLite would take the old one's log of writes, which has the same name, for its own.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_IDENTITY = struct.Struct("=QQ")  # device and inode


class FileReplacedError(OSError):
    """The message is for operators."""


class WatchedFile:
    """All users of the file in this process share it. ``memory``: the descriptor of a file in which
    the server's first worker notes which file it opened, for workers that start later; None: this
    process has no others."""

    def __init__(self, path: Path, memory: int | None = None) -> None:
        self._path = path
        self._memory = memory
        self._first: tuple[int, int] | None = None

    def check(self) -> None:
        """Call it before each use. Raises FileReplacedError if this is not the file that the server
        opened first, until that is put back."""
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError:  # it may be there; SQLite says why it cannot be opened
            return
        else:
            found = status.st_dev, status.st_ino
        if self._first is None:
            self._first = self._agreed(found)
        if found != self._first:
            raise FileReplacedError(
                f"{self._path} was deleted or replaced while the server had it open; if that was a "
                "mistake, put the file back, and nothing else is needed; if another file is to "
                f"stay, stop the servers, delete {self._path}-wal and {self._path}-shm, and start "
                "the servers"
            )

    def _agreed(self, found: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the file that the server's workers use; ``found`` if they use none yet."""
        if self._memory is None:
            return found
        if found is not None and not os.pread(self._memory, 1, 0):
            # Appending is atomic: of workers that start together, the first one's note counts.
            flags = fcntl.fcntl(self._memory, fcntl.F_GETFL)
            fcntl.fcntl(self._memory, fcntl.F_SETFL, flags | os.O_APPEND)
            os.write(self._memory, _IDENTITY.pack(*found))
        noted = os.pread(self._memory, _IDENTITY.size, 0)
        if len(noted) < _IDENTITY.size:
            return None
        device, inode = _IDENTITY.unpack(noted)
        return device, inode
