"""Looks into the engine through the link: its KV cache on request, and its steps."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from engine.inspected import Inspect, Inspected, WatchSteps

MOST_INSPECTIONS = 16


class NoInspectionError(Exception):
    """The engine did not answer: it is gone, or in a step that takes longer."""


class Inspections:
    """``send`` returns False if there is no engine."""

    def __init__(self, send: Callable[[Inspect | WatchSteps], bool]) -> None:
        self._send = send
        self._sees_every_step = True
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Inspected]] = {}

    async def inspect(
        self, *, kv: bool = True, prefixes: int = 0, timeout: float = 2.0
    ) -> Inspected:
        """Ask the engine. Raises NoInspectionError if there is no answer within ``timeout`` s, or
        too many wait for one."""
        if len(self._open) >= MOST_INSPECTIONS:
            raise NoInspectionError(f"{MOST_INSPECTIONS} other requests are waiting for the engine")
        number = next(self._numbers)
        future: asyncio.Future[Inspected] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            if not self._send(Inspect(number, kv=kv, prefixes=prefixes)):
                raise NoInspectionError("no engine is running")
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise NoInspectionError(f"the engine did not respond within {timeout:g} s") from None
        finally:
            del self._open[number]

    def watch(self, *, every_step: bool) -> None:
        """Receive every step, as at first, or only some while nothing is open."""
        if every_step is not self._sees_every_step:
            self._sees_every_step = every_step
            self._send(WatchSteps(every_step))

    def connected(self) -> None:
        """There is an engine, which does not know yet what to report."""
        if not self._sees_every_step:
            self._send(WatchSteps(every_step=False))

    def answered(self, message: Inspected) -> None:
        future = self._open.get(message.number)
        if future is not None and not future.done():
            future.set_result(message)

    def lost(self) -> None:
        """The engine is gone."""
        for future in self._open.values():
            if not future.done():
                future.set_exception(NoInspectionError("the engine has exited"))
