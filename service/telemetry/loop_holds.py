"""Measures how long the event loop is blocked: the CPU time of its thread between timer calls."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.02
# The engine's messages bring a look earlier, but not much more often than a step of 10 ms.
_SHORTEST_SECONDS = 0.008


class LoopHolds:
    """Calls ``observe`` with CPU seconds, some 50 times a second while requests are open between
    ``start`` and ``stop``. The main cost of a check is waking the loop, so an idle server is not
    woken, and a busy one checks when an engine message has woken it anyway (``engine_spoke``). Call
    all methods on the event loop."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._open = 0  # requests
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look_handle: asyncio.Handle | None = None
        self._cpu_seconds = 0.0  # of the event loop's thread, at the last check
        self._earliest = math.inf  # loop time from which an engine message triggers a check

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
        """An engine message is being processed, perhaps one of many in this iteration of the loop:
        check in the next iteration, so that this one's time is not split."""
        if self._loop is None or self._look_handle is None or self._loop.time() < self._earliest:
            return
        self._earliest = math.inf
        self._look_handle.cancel()
        self._look_handle = self._loop.call_soon(self._look)

    def _arm(self) -> None:
        if self._open and self._loop is not None:
            self._earliest = self._loop.time() + _SHORTEST_SECONDS
            self._look_handle = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def _look(self) -> None:
        self._look_handle = None
        now = time.thread_time()
        self._observe(now - self._cpu_seconds)
        self._cpu_seconds = now
        self._arm()
