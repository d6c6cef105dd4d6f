"""Shares a few processes fairly, so that one owner's many requests do not delay another's.

Each owner has a queue; owners are served in rotation. In a queue the smallest request goes first,
except that one that has waited long takes precedence. One process is never used for large requests,
so small ones are always served. The queues of all owners together are bounded in number and in
bytes: when they are full, the largest request of the owner with the most waiting requests is
rejected; if that is the new request's owner, the new one is.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.errors import OverloadedError

# A request that has waited this long precedes smaller ones.
_PATIENCE_SECONDS = 5.0
_MAX_RETRY_AFTER_SECONDS = 120
# The weight of the old average when a new duration is added.
_KEPT_OF_AVERAGE = 0.8


@dataclass(slots=True, eq=False)
class _Waiter:
    owner: str
    size: int
    is_large: bool
    since: float = field(default_factory=time.monotonic)
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def counted(self) -> int:
        """In bytes; small ones are bounded by their number."""
        return self.size if self.is_large else 0


class Turns:
    """At most ``slots`` run at once, one fewer of those larger than ``large`` bytes. At most
    ``most_waiting`` wait; large ones, running and waiting, hold at most ``most_bytes`` (a single
    one may be larger). ``what``: what they wait for, as named in the error."""

    def __init__(
        self, slots: int, *, large: int, most_waiting: int, most_bytes: int, what: str
    ) -> None:
        self._slots = slots
        self._large = large
        self._most_waiting = most_waiting
        self._most_bytes = most_bytes
        self._what = what
        self._running = self._running_large = 0
        self._bytes = 0
        self._queues: OrderedDict[str, list[_Waiter]] = OrderedDict()  # in the order of their turns
        self._seconds: float | None = None  # the average duration of a turn

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def oldest_wait(self) -> float:
        """Seconds that the request has waited that has waited longest; 0 if none waits."""
        since = [waiter.since for queue in self._queues.values() for waiter in queue]
        return time.monotonic() - min(since) if since else 0.0

    @asynccontextmanager
    async def turn(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold a slot while the block runs. ``size``: the bytes held from now on.

        Raises OverloadedError, at once or while waiting, when there is no room.
        """
        waiter = _Waiter(owner, size, size > self._large)
        self._make_room(owner, waiter.counted)
        self._queues.setdefault(owner, []).append(waiter)
        self._bytes += waiter.counted
        self._grant()
        try:
            await waiter.granted
            begin = time.monotonic()
            yield
            self._note(time.monotonic() - begin)
        finally:
            self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a request that has run or stopped waiting."""
        if waiter in self._queues.get(waiter.owner, ()):
            self._forget(waiter)
        elif not waiter.granted.cancelled() and waiter.granted.exception() is None:
            self._running -= 1
            self._running_large -= waiter.is_large
            self._bytes -= waiter.counted
        self._grant()

    def _forget(self, waiter: _Waiter) -> None:
        queue = self._queues[waiter.owner]
        queue.remove(waiter)
        self._bytes -= waiter.counted
        if not queue:
            del self._queues[waiter.owner]

    def _make_room(self, owner: str, size: int) -> None:
        """Raise OverloadedError if the new request is the one to be rejected."""
        while self._queues and (self.waiting >= self._most_waiting or self._lacks_bytes(size)):
            most = max(self._queues, key=lambda each: len(self._queues[each]))
            if len(self._queues[most]) <= len(self._queues.get(owner, ())):
                raise self._overloaded()
            given_up = max(self._queues[most], key=lambda waiter: waiter.size)
            self._forget(given_up)
            if not given_up.granted.done():  # its client may have just left
                given_up.granted.set_exception(self._overloaded())
        if self._lacks_bytes(size):
            raise self._overloaded()

    def _lacks_bytes(self, size: int) -> bool:
        return size > 0 and self._bytes > 0 and self._bytes + size > self._most_bytes

    def _grant(self) -> None:
        while self._running < self._slots:
            waiter = next(filter(None, map(self._next_of, self._queues)), None)
            if waiter is None:
                return
            queue = self._queues[waiter.owner]
            queue.remove(waiter)
            if queue:
                self._queues.move_to_end(waiter.owner)
            else:
                del self._queues[waiter.owner]
            self._running += 1
            self._running_large += waiter.is_large
            waiter.granted.set_result(None)

    def _next_of(self, owner: str) -> _Waiter | None:
        takes_large = self._running_large < max(1, self._slots - 1)
        able = [
            waiter
            for waiter in self._queues[owner]
            if (takes_large or not waiter.is_large) and not waiter.granted.done()
        ]
        if not able:
            return None
        if time.monotonic() - able[0].since > _PATIENCE_SECONDS:
            return able[0]
        return min(able, key=lambda waiter: waiter.size)

    def _note(self, seconds: float) -> None:
        if self._seconds is None:
            self._seconds = seconds
        self._seconds += (1 - _KEPT_OF_AVERAGE) * (seconds - self._seconds)

    def _overloaded(self) -> OverloadedError:
        retry_after = None
        if self._seconds is not None:
            seconds = math.ceil((self.waiting + 1) * self._seconds / self._slots)
            retry_after = min(_MAX_RETRY_AFTER_SECONDS, max(1, seconds))
        return OverloadedError(
            f"Too many requests are waiting for {self._what}; retry later.", retry_after=retry_after
        )
