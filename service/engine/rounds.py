"""Calls that one message of the engine causes, made together.

A message brings a token to each of hundreds of streams. To wake a task for each of them would cost
more than to encode the token, so streams that follow quickly enough are called instead, all of them
in one callback of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Called before the loop looks at its sockets and timers again: about half a millisecond.
_MOST_AT_ONCE = 64

WakeUp = Callable[[], None]


class Round:
    """Of one event loop. The calls must not raise."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[WakeUp] = []

    def add(self, *calls: WakeUp) -> None:
        """Make these calls in the next iteration of the loop, or in one soon after."""
        if not self._due:
            self._loop.call_soon(self._run)
        self._due += calls

    def _run(self) -> None:
        due, self._due = self._due, []
        if len(due) > _MOST_AT_ONCE:
            self._due = due[_MOST_AT_ONCE:]
            del due[_MOST_AT_ONCE:]
            self._loop.call_soon(self._run)
        for call in due:
            call()


_rounds: dict[asyncio.AbstractEventLoop, Round] = {}


def round_of(loop: asyncio.AbstractEventLoop) -> Round:
    """Return the loop's round."""
    found = _rounds.get(loop)
    if found is None:
        for ended in [one for one in _rounds if one.is_closed()]:
            del _rounds[ended]
        found = _rounds[loop] = Round(loop)
    return found
