"""Takes turns at the event loop: work that is not part of a stream does a piece of a millisecond or
two, then waits here for its next turn.

Yielding to the event loop (``sleep(0)``) bounds what one such answer costs a stream, but not what a
hundred of them cost: each would do a piece in every iteration of the loop. Of all that wait here,
one continues in each iteration, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

_Waiting = deque[asyncio.Future[None]]

_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()


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
