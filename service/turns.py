"""Takes turns at the event loop: a long answer other than a stream of tokens is made in pieces
of a millisecond or two, and waits here for its turn between them.

To yield to the event loop (``sleep(0)``) bounds what one such answer costs a stream, but not what a
hundred of them do: each would do a piece in every round of the loop. Of all that wait here, one
continues in each round, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

# Small pieces of work go together until they have taken so long.
_TURN_SECONDS = 0.0005

_Waiting = deque[asyncio.Future[None]]

_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()


class Pace:
    """Of one answer, whose turn has just begun."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _TURN_SECONDS

    @property
    def is_over(self) -> bool:
        """True if it is another's turn."""
        return time.monotonic() >= self._until

    async def next(self) -> None:
        """Wait for the next turn."""
        await my_turn()
        self._until = time.monotonic() + _TURN_SECONDS

    async def rest(self) -> None:
        """Wait for the next turn if this one is over. Call it after each piece of work."""
        if self.is_over:
            await self.next()


async def my_turn() -> None:
    """Return when the caller may do its next piece of work."""
    loop = asyncio.get_running_loop()
    waiting = _waiting.setdefault(loop, deque())
    turn: asyncio.Future[None] = loop.create_future()
    waiting.append(turn)
    if len(waiting) == 1:
        loop.call_soon(_give, loop, waiting)
    await turn


def _give(loop: asyncio.AbstractEventLoop, waiting: _Waiting) -> None:
    """Wake the first that still waits; it stays in the queue meanwhile, so that no second round
    begins."""
    while waiting and waiting[0].done():  # it has had its turn, or was cancelled
        waiting.popleft()
    if waiting:
        waiting[0].set_result(None)
        loop.call_soon(_give, loop, waiting)
