"""Signs of life: a page of shared memory that one process writes and another reads.

Neither waits for the other, and what a dead process wrote last can still be read. The page is a
small file that both map. It holds float64 numbers, each written in one piece.
"""

from __future__ import annotations

import enum
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

FLOAT_BYTES = 8
# A step may take this many times as long as the slowest steps so far suggest.
STEP_MARGIN = 10.0
_FORGETTING = 0.99  # per step, so that one that was held up does not count for ever


class Sign(enum.IntEnum):
    """What a page says, by its place in it. A child writes the first four, the supervisor the rest
    into a page of its own."""

    BEATS = 0  # grows while the process gets on; a supervisor's: monotonic seconds
    PROGRESS = 1  # work done: tokens computed and sequences ended, or requests answered
    READY_AT = 2  # monotonic seconds; 0: it is still starting
    ALLOWED_SECONDS = 3  # that may pass until the next beat; infinite: unknown
    FRUITLESS_DEATHS = 4  # of the engine, one after another, each without progress
    NEXT_START_AT = 5  # of a dead engine, monotonic seconds; 0: it runs


class Page:
    """``page[Sign.BEATS]``: read or write a number. All are 0 at first. Without a path the page is
    this process's own. Raises OSError for a file that cannot be made or mapped, ValueError for one
    that is too short."""

    def __init__(self, path: Path | None = None, *, create: bool = False) -> None:
        size = len(Sign) * FLOAT_BYTES
        self._values = memoryview(bytearray(size)).cast("d")
        if path is None:
            return
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                # Written, not just sized: on a full disk a hole would kill whoever writes to it.
                os.write(descriptor, bytes(size))
            self._values = memoryview(mmap.mmap(descriptor, size)).cast("d")
        finally:
            os.close(descriptor)

    def __getitem__(self, sign: Sign) -> float:
        return self._values[sign]

    def __setitem__(self, sign: Sign, value: float) -> None:
        self._values[sign] = value

    def clear(self) -> None:
        """Another process is about to write it."""
        for sign in Sign:
            self._values[sign] = 0.0


class EngineBeats:
    """What an engine's loop says of itself.

    A turn of the loop is a beat if it had nothing to do or got something done: an engine that spins
    without getting anywhere does not beat. ``measures_steps``: how long a step may take is learnt
    from those before; for devices on which it may be minutes.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic) -> None:
        self._page = page
        self._clock = clock
        self._measures_steps = False
        self._planned = 0  # tokens of the turn's step
        self._begin = 0.0
        self._progress = 0
        self._slowest = 0.0  # seconds of a step
        self._slowest_token = 0.0  # seconds of a step, divided by its tokens

    def ready(self, *, measures_steps: bool) -> None:
        """The model is loaded; the loop begins."""
        self._measures_steps = measures_steps
        self._page[Sign.READY_AT] = self._clock()

    def planned(self, tokens: int) -> None:
        """A step of so many tokens is about to run."""
        if not tokens:
            return
        self._planned = tokens
        if self._measures_steps:
            self._begin = self._clock()
            expected = max(self._slowest, tokens * self._slowest_token)
            self._page[Sign.ALLOWED_SECONDS] = STEP_MARGIN * expected or float("inf")

    def turned(self, progress: int, *, is_idle: bool) -> None:
        """The loop has made a turn. ``progress``: all that was done so far."""
        page = self._page
        if self._planned:
            if self._measures_steps:
                seconds = self._clock() - self._begin
                self._slowest = max(seconds, self._slowest * _FORGETTING)
                self._slowest_token = max(
                    seconds / self._planned, self._slowest_token * _FORGETTING
                )
                page[Sign.ALLOWED_SECONDS] = 0.0
            self._planned = 0
        if is_idle or progress != self._progress:
            page[Sign.BEATS] += 1.0
        if progress != self._progress:
            self._progress = progress
            page[Sign.PROGRESS] = progress
