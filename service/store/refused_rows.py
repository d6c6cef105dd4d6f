"""Logs rows that the database refuses to take, which are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from observability.logging import get_logger

_QUIET_SECONDS = 60.0

_log = get_logger()


class RefusedRows:
    """Writes at most one line a minute: a broken table refuses every row."""

    def __init__(self, message: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._message = message
        self._clock = clock
        self._rows = 0  # since the last line
        self._next = float("-inf")

    def note(self, errors: Sequence[str]) -> None:
        """``errors``: of each row that was refused."""
        self._rows += len(errors)
        now = self._clock()
        if not errors or now < self._next:
            return
        _log.error(self._message, rows=self._rows, error=errors[0])
        self._rows, self._next = 0, now + _QUIET_SECONDS
