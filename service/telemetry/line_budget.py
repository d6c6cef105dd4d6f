"""Bounds how many log lines something that strangers can trigger may write."""

from __future__ import annotations

import time
from collections.abc import Callable

LINES_AT_ONCE = 100
LINES_PER_SECOND = 5.0


class LineBudget:
    """Allows ``LINES_AT_ONCE`` lines at once, then ``LINES_PER_SECOND``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._credit = float(LINES_AT_ONCE)
        self._credited = clock()
        self._left_out = 0

    def take(self) -> bool:
        """Return True if another line may be written now."""
        now = self._clock()
        self._credit = min(LINES_AT_ONCE, self._credit + (now - self._credited) * LINES_PER_SECOND)
        self._credited = now
        if self._credit < 1:
            self._left_out += 1
            return False
        self._credit -= 1
        return True

    def left_out(self) -> int:
        """Return how many lines were not written since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out
