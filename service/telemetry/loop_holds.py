"""How long the event loop is held: the CPU time of its thread before it turns to a timer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.02
# A look that needs no wake-up of its own may come so much earlier, and the timer so much later.
_SLACK_SECONDS = 0.005


class LoopHolds:
    """Calls ``observe`` with CPU seconds, some 50 times a second while requests are open between
    ``start`` and ``stop``. Most of what a look costs is waking the loop for it, so an idle server
    is not woken, and a busy one looks when the engine has woken it anyway (``engine_spoke``). All
    methods are called on the event loop."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._open = 0  # requests
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look_handle: asyncio.Handle | None = None
        self._cpu_seconds = 0.0  # of the event loop's thread, when it was last looked at
        self._earliest = math.inf  # loop time from when a message of the engine brings a look

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        self._loop = None
        if self._look_handle is not None:
            self._look_handle.cancel()
            self._look_handle = None

    def request_begins(self) -> None:
        self._open += 1
        if self._look_handle is None:
            self._cpu_seconds = time.thread_time()
            self._arm()

    def request_ends(self) -> None:
        self._open -= 1

    def engine_spoke(self) -> None:
        """A message of the engine is being processed, perhaps one of many in this turn of the loop:
        the look waits for the next turn, or it would split this one's hold."""
        if self._loop is None or self._look_handle is None or self._loop.time() < self._earliest:
            return
        self._earliest = math.inf
        self._look_handle.cancel()
        self._look_handle = self._loop.call_soon(self._look)

    def _arm(self) -> None:
        if self._open and self._loop is not None:
            self._earliest = self._loop.time() + INTERVAL_SECONDS - _SLACK_SECONDS
            self._look_handle = self._loop.call_later(INTERVAL_SECONDS + _SLACK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_handle = None
        now = time.thread_time()
        self._observe(now - self._cpu_seconds)
        self._cpu_seconds = now
        self._arm()
