"""A library that repeats itself is heard once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


class OncePerMinute(logging.Filter):
    """Lets one line a minute pass of all loggers below ``names`` together; it says how many were
    left out since the one before. Other loggers' lines all pass.

    Attach it to a handler: a logger's own filters do not see its children's lines."""

    SECONDS = 60.0

    def __init__(self, *names: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._prefixes = tuple(f"{name}." for name in names)
        self._clock = clock
        self._next = -self.SECONDS
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """A handler calls this under no lock: two threads at once may miscount by one."""
        if not f"{record.name}.".startswith(self._prefixes):
            return True
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return False
        if self._left_out:
            message = f"{record.getMessage()} ({self._left_out} more since the last such line)"
            record.msg, record.args = message, ()
        self._next, self._left_out = now + self.SECONDS, 0
        return True
