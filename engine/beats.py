"""Heartbeats: a page of shared memory that one process writes and another reads.

Neither waits for the other, and the last values of a dead process can still be read. The page is a
small file that both map. It holds float64 numbers, each written atomically.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

FLOAT_BYTES = 8
# A step may take this many times as long as predicted from the slowest steps so far.
STEP_MARGIN = 10.0
_FORGETTING = 0.99  # per step, so that the effect of a delayed one wears off


def failure_path(own: Path) -> Path:
    """Return the file in which a child writes why it cannot start, next to its ``own``: an engine's
    socket, or a child's page of heartbeats, which have the same name."""
    return own.with_suffix(".failure")


def write_failure(own: Path, error: Exception) -> None:
    """Write the sentence with which the supervisor ends. It may quote names that are not text."""
    with contextlib.suppress(OSError):
        failure_path(own).write_text(str(error), encoding="utf-8", errors="backslashreplace")


class Sign(enum.IntEnum):
    """The numbers of a child's page, by position."""

    BEATS = 0  # grows while the process makes progress
    PROGRESS = 1  # work done: tokens computed and sequences ended, or requests answered
    READY_AT = 2  # monotonic seconds; 0: still starting
    ALLOWED_SECONDS = 3  # until the next beat; infinite: unknown
    TOTAL = 4  # work that there is; 0: unknown


class SharedNumbers:
    """``count`` numbers in shared memory, all 0 at first. Without a path they are private to this
    process. Raises OSError if the file cannot be created or mapped, ValueError if it is too
    short."""

    def __init__(self, count: int, path: Path | None = None, *, create: bool = False) -> None:
        size = count * FLOAT_BYTES
        self._values = memoryview(bytearray(size)).cast("d")
        if path is None:
            return
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                # Written, not just resized: on a full disk, writing to a hole would kill the
                # process.
                os.write(descriptor, bytes(size))
            self._values = memoryview(mmap.mmap(descriptor, size)).cast("d")
        finally:
            os.close(descriptor)

    def __getitem__(self, number: int) -> float:
        return self._values[number]

    def __setitem__(self, number: int, value: float) -> None:
        self._values[number] = value


class Page(SharedNumbers):
    """One child's numbers, accessed as ``page[Sign.BEATS]``."""

    def __init__(self, path: Path | None = None, *, create: bool = False) -> None:
        super().__init__(len(Sign), path, create=create)

    def clear(self) -> None:
        """Reset the page for another process."""
        for sign in Sign:
            self._values[sign] = 0.0


class EngineBeats:
    """Writes the heartbeats of an engine's loop.

    An iteration of the loop counts as a beat if it was idle or made progress, so an engine that
    spins without progress does not beat. ``measures_steps``: predict how long a step may take from
    earlier ones, for devices on which it may take minutes.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic) -> None:
        self._page = page
        self._clock = clock
        self._measures_steps = False
        self._planned = 0  # tokens of the current step
        self._begin = 0.0
        self._progress = 0
        self._slowest = 0.0  # seconds of a step
        self._slowest_token = 0.0  # seconds of a step per token

    def ready(self, *, measures_steps: bool) -> None:
        """Record that the model is loaded and the loop begins."""
        self._measures_steps = measures_steps
        self._page[Sign.READY_AT] = self._clock()

    @property
    def allowed_seconds(self) -> float:
        """How long the current step may take, predicted from earlier ones: infinite for the first;
        0 if steps are not measured, or none runs."""
        return self._page[Sign.ALLOWED_SECONDS]

    def planned(self, tokens: int) -> None:
        """Record that a step of this many tokens is about to run."""
        if not tokens:
            return
        self._planned = tokens
        if self._measures_steps:
            self._begin = self._clock()
            expected = max(self._slowest, tokens * self._slowest_token)
            self._page[Sign.ALLOWED_SECONDS] = STEP_MARGIN * expected or float("inf")

    def turned(self, progress: int, *, is_idle: bool) -> None:
        """Record an iteration of the loop. ``progress``: the total work done so far."""
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
