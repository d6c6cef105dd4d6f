"""Lets the workers of a server take turns with trials (``service.engine.suspects``).

An engine serves several workers. If two of them ran a suspect at the same time, its death would
accuse both; and a sequence is convicted only if it was alone in the engine. So each engine has two
files next to its socket that workers lock. The kernel frees the locks of a worker that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from observability.logging import get_logger

# A worker that checks whether the second file is locked holds the lock for microseconds.
_ATTEMPTS = 100

_log = get_logger()


class _Lock:
    """A lock on a file, which is created. A file that cannot be used is always free,
    which is logged once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._is_logged = False

    def take(self, *, shared: bool = False) -> bool:
        """Return False if others hold it. Taking it twice is the same as once."""
        try:
            if self._descriptor is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._is_logged:
                self._is_logged = True
                _log.warning(
                    "workers cannot take turns with trials: requests of others may be accused",
                    file=str(self._path),
                    error=str(error),
                )
            return True
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class TrialTurn:
    """Of one worker, for the engine on ``socket_path``; None: there are no other workers.

    A worker with an accused sequence announces that from the death of the engine until the
    sequence has been tried. Meanwhile no worker sends anything else to the next engine. Any trial
    needs the turn, which one worker has at a time.
    """

    def __init__(self, socket_path: Path | None = None) -> None:
        self._turn = self._accused = None
        if socket_path is not None:
            self._turn = _Lock(socket_path.with_suffix(".trial"))
            self._accused = _Lock(socket_path.with_suffix(".accused"))

    def announce(self) -> None:
        """Have the other workers leave the next engine to this worker's accused sequences."""
        accused = self._accused
        if accused is not None and not any(accused.take(shared=True) for _ in range(_ATTEMPTS)):
            _log.warning("accused sequences could not be announced to the other workers")

    def withdraw(self) -> None:
        """No sequence of this worker is accused any longer."""
        if self._accused is not None:
            self._accused.release()

    def is_announced(self) -> bool:
        """True if another worker has accused sequences. Not to be called by one that has some."""
        if self._accused is None:
            return False
        free = self._accused.take()
        if free:
            self._accused.release()
        return not free

    def take(self) -> bool:
        """Return False if another worker has the turn."""
        return self._turn is None or self._turn.take()

    def leave(self) -> None:
        if self._turn is not None:
            self._turn.release()
