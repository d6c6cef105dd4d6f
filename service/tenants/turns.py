"""Shares a few processes fairly, so that one owner's many requests do not delay another's.

Each owner has a queue; owners are served in rotation. In a queue the smallest request goes first,
except that one that has waited long takes precedence. One process is never used for large requests,
so small ones are always served. All queues together are bounded in number, and the small and the
large requests each in bytes. When there is no room, the largest request of the owner with the most
waiting requests is rejected; if that is the new request's owner, the new one is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.errors import OverloadedError

# A request that has waited this long precedes smaller ones.
_PATIENCE_SECONDS = 5.0
_MAX_RETRY_AFTER_SECONDS = 120
# The average duration is of about so many turns: one that took long, because the event loop was
# busy, counts little.
_AVERAGED = 50
# So many requests that have left may stay in a line's structures, besides one for each waiting.
_LEFTOVERS = 64

_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class _Waiter:
    owner: str
    size: int
    is_large: bool
    since: float = field(default_factory=time.monotonic)
    number: int = field(default_factory=lambda: next(_numbers))
    in_line: bool = True
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_able(self) -> bool:
        """False also if its client has just left."""
        return self.in_line and not self.granted.done()


class _Line:
    """The waiting requests of one owner, either the small or the large ones. Those that leave are
    removed later, so that each operation takes O(log n) time, on average over many."""

    def __init__(self) -> None:
        self.count = 0
        self._by_size: list[tuple[int, int, _Waiter]] = []
        self._by_age: deque[_Waiter] = deque()

    def __iter__(self) -> Iterator[_Waiter]:
        return (waiter for waiter in self._by_age if waiter.in_line)

    def add(self, waiter: _Waiter) -> None:
        self.count += 1
        heapq.heappush(self._by_size, (waiter.size, waiter.number, waiter))
        self._by_age.append(waiter)

    def remove(self, waiter: _Waiter) -> None:
        waiter.in_line = False
        self.count -= 1
        if max(len(self._by_size), len(self._by_age)) > 2 * self.count + _LEFTOVERS:
            self._by_age = deque(self)
            self._by_size = [(each.size, each.number, each) for each in self._by_age]
            heapq.heapify(self._by_size)

    def oldest(self) -> _Waiter | None:
        while self._by_age and not self._by_age[0].in_line:
            self._by_age.popleft()
        return next((each for each in self._by_age if each.is_able), None)

    def smallest(self) -> _Waiter | None:
        while self._by_size and not self._by_size[0][2].is_able:
            heapq.heappop(self._by_size)
        return self._by_size[0][2] if self._by_size else None


class _Queue:
    """The waiting requests of one owner."""

    def __init__(self) -> None:
        self.lines = (_Line(), _Line())  # small ones, large ones

    def __len__(self) -> int:
        return self.lines[False].count + self.lines[True].count

    def count(self, kinds: tuple[bool, ...]) -> int:
        return sum(self.lines[kind].count for kind in kinds)


_BOTH = (False, True)


class Turns:
    """At most ``slots`` run at once, one fewer of those larger than ``large`` bytes. At most
    ``most_waiting`` wait. The large ones, running and waiting, hold at most ``most_bytes`` (a
    single one may be larger), and so do the small ones. ``what``: what they wait for, as named in
    the error."""

    def __init__(
        self, slots: int, *, large: int, most_waiting: int, most_bytes: int, what: str
    ) -> None:
        self._slots = slots
        self._large = large
        self._most_waiting = most_waiting
        self._most_bytes = most_bytes
        self._what = what
        self._running = self._running_large = 0
        self._bytes = [0, 0]  # of small ones, of large ones
        self._queues: OrderedDict[str, _Queue] = OrderedDict()  # in the order of their turns
        self._seconds = 0.0  # the average duration of a turn
        self._ended = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def oldest_wait(self) -> float:
        """Seconds that the request has waited that has waited longest; 0 if none waits."""
        lines = [line for queue in self._queues.values() for line in queue.lines]
        since = [oldest.since for line in lines if (oldest := line.oldest())]
        return time.monotonic() - min(since) if since else 0.0

    @asynccontextmanager
    async def turn(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold a slot while the block runs. ``size``: the bytes held from now on.

        Raises OverloadedError, at once or while waiting, when there is no room.
        """
        waiter = _Waiter(owner, size, size > self._large)
        self._make_room(waiter)
        self._queues.setdefault(owner, _Queue()).lines[waiter.is_large].add(waiter)
        self._bytes[waiter.is_large] += size
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
        if waiter.in_line:
            self._remove(waiter)
            self._bytes[waiter.is_large] -= waiter.size
        elif not waiter.granted.cancelled() and waiter.granted.exception() is None:
            self._running -= 1
            self._running_large -= waiter.is_large
            self._bytes[waiter.is_large] -= waiter.size
        self._grant()

    def _remove(self, waiter: _Waiter) -> None:
        queue = self._queues[waiter.owner]
        queue.lines[waiter.is_large].remove(waiter)
        if not queue:
            del self._queues[waiter.owner]

    def _make_room(self, new: _Waiter) -> None:
        """Raise OverloadedError if the new request is the one to be rejected."""
        while True:
            if self.waiting >= self._most_waiting:
                kinds: tuple[bool, ...] = _BOTH
            elif self._lacks_bytes(new):
                kinds = (new.is_large,)
            else:
                return
            counts = {owner: queue.count(kinds) for owner, queue in self._queues.items()}
            most = max(counts, key=counts.__getitem__, default=new.owner)
            if counts.get(most, 0) <= counts.get(new.owner, 0):
                raise self._overloaded()
            waiters = [each for kind in kinds for each in self._queues[most].lines[kind]]
            given_up = max(waiters, key=lambda waiter: waiter.size)
            self._remove(given_up)
            self._bytes[given_up.is_large] -= given_up.size
            if not given_up.granted.done():  # its client may have just left
                given_up.granted.set_exception(self._overloaded())

    def _lacks_bytes(self, new: _Waiter) -> bool:
        held = self._bytes[new.is_large]
        return new.size > 0 and held > 0 and held + new.size > self._most_bytes

    def _grant(self) -> None:
        while self._running < self._slots:
            waiter = next(filter(None, map(self._next_of, self._queues.values())), None)
            if waiter is None:
                return
            self._remove(waiter)
            if waiter.owner in self._queues:
                self._queues.move_to_end(waiter.owner)
            self._running += 1
            self._running_large += waiter.is_large
            waiter.granted.set_result(None)

    def _next_of(self, queue: _Queue) -> _Waiter | None:
        takes_large = self._running_large < max(1, self._slots - 1)
        lines = queue.lines if takes_large else queue.lines[:1]
        oldest = min(filter(None, (line.oldest() for line in lines)), key=_since, default=None)
        if oldest is None or time.monotonic() - oldest.since > _PATIENCE_SECONDS:
            return oldest
        return next(filter(None, (line.smallest() for line in lines)), None)

    def _note(self, seconds: float) -> None:
        self._ended = min(self._ended + 1, _AVERAGED)
        self._seconds += (seconds - self._seconds) / self._ended

    def _overloaded(self) -> OverloadedError:
        """``Retry-After``: when all that wait now will have had their turns."""
        seconds = math.ceil((self.waiting + 1) * self._seconds / self._slots)
        retry_after = min(_MAX_RETRY_AFTER_SECONDS, max(1, seconds))
        return OverloadedError(
            f"Too many requests are waiting for {self._what}; retry later.", retry_after=retry_after
        )


def _since(waiter: _Waiter) -> float:
    return waiter.since
