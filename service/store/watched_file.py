"""Notices that SQLite's file was deleted or replaced while this process has it open.

SQLite would keep reading and writing the file that no longer has a name. Nor can the new one be
opened instead: SQLite would take the old one's log of writes, which has the same name, for its own.
"""

from __future__ import annotations

from pathlib import Path


class FileReplacedError(OSError):
    """The message is for operators."""


class WatchedFile:
    """All users of the file in this process share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, int] | None = None

    def check(self) -> None:
        """Call it before each use. Raises FileReplacedError if this is not the file that there was
        at the first one, until that is put back."""
        found = self._identity()
        if self._first is None:
            self._first = found
        elif found != self._first:
            raise FileReplacedError(
                f"{self._path} was deleted or replaced while the server had it open; stop the "
                f"server, delete {self._path}-wal and {self._path}-shm, and start it again"
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:  # SQLite says why it cannot be opened
            return None
        return found.st_dev, found.st_ino
