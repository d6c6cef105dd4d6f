"""How long the event loop is held: the CPU time of its thread before it turns to a timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.02


class LoopHolds:
    """Calls ``observe`` with CPU seconds, 50 times a second while requests are open between
    ``start`` and ``stop``. An idle server is not woken for it; a busy one pays a few microseconds
    each time, which is why no task does this. All methods are called on the event loop."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._open = 0  # requests
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_seconds = 0.0  # of the event loop's thread, when it was last looked at

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def request_begins(self) -> None:
        self._open += 1
        if self._timer is None:
            self._cpu_seconds = time.thread_time()
            self._arm()

    def request_ends(self) -> None:
        self._open -= 1

    def _arm(self) -> None:
        if self._open and self._loop is not None:
            self._timer = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.thread_time()
        self._observe(now - self._cpu_seconds)
        self._cpu_seconds = now
        self._arm()
