"""Shares a few processes fairly, so that one owner's many requests do not delay another's.

Each owner has a queue; owners are served in rotation. In a queue the smallest request goes first,
except that one that has waited long takes precedence. One process is never used for large requests,
so small ones are always served. All queues together are bounded in number, and the small and the
large requests each in bytes. When there is no room, the largest requests of the owner with the most
waiting requests, or bytes, are rejected; if that is the new request's owner, the new one is.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from operator import attrgetter

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


class _Full(enum.Enum):
    """What there is no more room for."""

    REQUESTS = enum.auto()
    BYTES = enum.auto()


@dataclass(slots=True, eq=False)
class _Waiter:
    """``granted``: resolves when its turn begins, or when it is rejected, to the reason."""

    owner: str
    size: int
    is_large: bool
    since: float = field(default_factory=time.monotonic)
    number: int = field(default_factory=lambda: next(_numbers))
    in_line: bool = True
    granted: asyncio.Future[_Full | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_able(self) -> bool:
        """False also if its client has just left, from then on."""
        return self.in_line and not self.granted.done()


class _Line:
    """The waiting requests of one owner, either the small or the large ones. Those that leave are
    removed from the structures later, so that an operation takes O(log n) time on average."""

    def __init__(self) -> None:
        self.count = 0
        self._by_size: list[tuple[int, int, _Waiter]] = []
        self._by_age: deque[_Waiter] = deque()

    def __iter__(self) -> Iterator[_Waiter]:
        return filter(attrgetter("is_able"), self._by_age)

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
        while self._by_age and not self._by_age[0].is_able:
            self._by_age.popleft()
        return self._by_age[0] if self._by_age else None

    def smallest(self) -> _Waiter | None:
        while self._by_size and not self._by_size[0][2].is_able:
            heapq.heappop(self._by_size)
        return self._by_size[0][2] if self._by_size else None


@dataclass(slots=True)
class _Queue:
    """The waiting requests of one owner."""

    small: _Line = field(default_factory=_Line)
    large: _Line = field(default_factory=_Line)

    @property
    def count(self) -> int:
        return self.small.count + self.large.count

    def line(self, is_large: bool) -> _Line:
        return self.large if is_large else self.small


class Turns:
    """At most ``slots`` run at once, one fewer of those larger than ``large`` bytes. At most
    ``most_waiting`` wait. The large ones, running and waiting, hold at most ``most_bytes`` (a
    single one may be larger), and so do the small ones. ``what``: what they wait for, as named in
    the error."""

    def __init__(
        self,
        slots: int,
        *,
        most_waiting: int,
        what: str,
        large: float = math.inf,
        most_bytes: float = math.inf,
    ) -> None:
        self._slots = slots
        self._large = large
        self._most_waiting = most_waiting
        self._most_bytes = most_bytes
        self._what = what
        self._running = self._running_large = 0
        self._waiting = 0
        self._small_bytes = self._large_bytes = 0
        self._queues: OrderedDict[str, _Queue] = OrderedDict()  # in the order of their turns
        self._seconds = 0.0  # the average duration of a turn's work
        self._timed = 0
        self._will_grant = False

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def oldest_wait(self) -> float:
        """Seconds that the request has waited that has waited longest; 0 if none waits."""
        lines = [line for queue in self._queues.values() for line in (queue.small, queue.large)]
        since = [oldest.since for line in lines if (oldest := line.oldest())]
        return time.monotonic() - min(since) if since else 0.0

    @asynccontextmanager
    async def turn(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold a slot while the block runs. ``size``: the bytes held from now on.

        Raises OverloadedError, at once or while waiting, when there is no room.
        """
        waiter = _Waiter(owner, size, size > self._large)
        self._make_room(waiter)
        self._queues.setdefault(owner, _Queue()).line(waiter.is_large).add(waiter)
        self._waiting += 1
        self._hold(waiter, size)
        self._grant()
        try:
            # Rejected ones keep no exception: its traceback would keep the request's body.
            if (full := await waiter.granted) is not None:
                raise self._overloaded(full)
            yield
        finally:
            self._leave(waiter)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """The block's duration counts towards ``Retry-After``: work as it is once its process has
        started."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._timed = min(self._timed + 1, _AVERAGED)
            self._seconds += (time.monotonic() - begin - self._seconds) / self._timed

    def _hold(self, waiter: _Waiter, size: int) -> None:
        """Count the bytes of a request; with a negative ``size``, no longer."""
        if waiter.is_large:
            self._large_bytes += size
        else:
            self._small_bytes += size

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a request that has run or stopped waiting, unless it was rejected."""
        if waiter.in_line:
            self._remove(waiter)
        elif not waiter.granted.cancelled() and waiter.granted.result() is None:
            self._running -= 1
            self._running_large -= waiter.is_large
        else:
            return
        self._hold(waiter, -waiter.size)
        if not self._will_grant:  # once, when many leave together
            self._will_grant = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _remove(self, waiter: _Waiter) -> None:
        """Remove a request from its queue."""
        queue = self._queues[waiter.owner]
        queue.line(waiter.is_large).remove(waiter)
        self._waiting -= 1
        if not queue.count:
            del self._queues[waiter.owner]

    # --- when there is no room --------------------------------------------------------------------

    def _make_room(self, new: _Waiter) -> None:
        """Reject others, or raise OverloadedError if the new request is the one to be rejected."""
        leaving = self._in_the_way(new)
        for waiter in leaving:
            self._reject(waiter, _Full.BYTES)
        if leaving or self._waiting < self._most_waiting:
            return
        counts = {owner: queue.count for owner, queue in self._queues.items()}
        most = max(counts, key=counts.__getitem__)
        able = [*self._queues[most].small, *self._queues[most].large]
        if not able or counts[most] <= counts.get(new.owner, 0):
            raise self._overloaded(_Full.REQUESTS)
        self._reject(max(able, key=attrgetter("size")), _Full.REQUESTS)

    def _in_the_way(self, new: _Waiter) -> list[_Waiter]:
        """Return the requests that must leave so that the new one's bytes find room. Raises
        OverloadedError if that would not help, or if its owner has the most bytes."""
        held = self._large_bytes if new.is_large else self._small_bytes
        if new.size == 0 or held == 0 or held + new.size <= self._most_bytes:
            return []
        lines = {owner: queue.line(new.is_large) for owner, queue in self._queues.items()}
        by_size = {owner: sorted(line, key=attrgetter("size")) for owner, line in lines.items()}
        waiting = {owner: sum(each.size for each in able) for owner, able in by_size.items()}
        own = waiting.pop(new.owner, 0) + new.size
        leaving: list[_Waiter] = []
        while held and held + new.size > self._most_bytes:
            most = max(waiting, key=waiting.__getitem__, default=new.owner)
            if waiting.get(most, 0) <= own:
                raise self._overloaded(_Full.BYTES)
            leaving.append(by_size[most].pop())
            waiting[most] -= leaving[-1].size
            held -= leaving[-1].size
        return leaving

    def _reject(self, waiter: _Waiter, full: _Full) -> None:
        self._remove(waiter)
        self._hold(waiter, -waiter.size)
        waiter.granted.set_result(full)

    def _overloaded(self, full: _Full) -> OverloadedError:
        """``Retry-After``: when all that wait now will have had their turns."""
        seconds = math.ceil((self._waiting + 1) * self._seconds / self._slots)
        retry_after = min(_MAX_RETRY_AFTER_SECONDS, max(1, seconds))
        if full is _Full.REQUESTS:
            held, advice = f"{self._most_waiting} requests", "retry later"
        else:
            held, advice = f"{self._most_bytes / 2**20:g} MiB", "retry later, or send less"
        return OverloadedError(
            f"The queue for {self._what} is full ({held}); {advice}.", retry_after=retry_after
        )

    # --- whose turn it is -------------------------------------------------------------------------

    def _grant(self) -> None:
        self._will_grant = False
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
        lines = (queue.small, queue.large) if takes_large else (queue.small,)
        oldest = min(
            filter(None, (line.oldest() for line in lines)), key=attrgetter("since"), default=None
        )
        if oldest is None or time.monotonic() - oldest.since > _PATIENCE_SECONDS:
            return oldest
        return next(filter(None, (line.smallest() for line in lines)), None)
