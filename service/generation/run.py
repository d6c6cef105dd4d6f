"""A stream that outlives its connection: pumped into a bounded log that any reader follows.

The plain path from engine to socket knows nothing of this. A ``Run`` takes the same stream of SSE
bytes, cuts it into events, numbers them with ``id:`` lines and keeps them, so that a client whose
connection broke can ask for the rest and gets exactly the bytes it missed.

Bounds: bytes of one run (its oldest events go), bytes of all runs and of what their readers are
being sent (ended runs go, then new ones are refused), readers of one run, seconds that a run goes
on with nobody reading, and seconds it is kept after its end.
Where several keys share the server, each has a share of the bytes of all runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from service.errors import ClientGoneError, OverloadedError
from service.generation.request import Generation
from service.tenants.caller import Caller
from service.tenants.waiting_places import share

_END = b"\n\n"
# The most that is sent to a reader at a time, and so held by one that does not read it.
RUN_PIECE_BYTES = 64 * 1024
MOST_READERS = 64  # of one run


@dataclass(frozen=True, slots=True)
class RunLimits:
    """``timeout``: seconds with nobody reading, and seconds kept after the end."""

    timeout: float
    run_bytes: int
    total_bytes: int


class RunMemory:
    """Bytes that all logs hold together, with what is being sent of them, and those of each
    owner."""

    def __init__(self) -> None:
        self.used = 0
        self._by_owner: Counter[str] = Counter()

    def add(self, owner: str, size: int) -> None:
        """``size`` is negative for what is given back."""
        self.used += size
        self._by_owner[owner] += size
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def of(self, owner: str) -> int:
        return self._by_owner[owner]

    def owners(self, *, beside: str) -> int:
        """How many hold something, not counting ``beside``."""
        return len(self._by_owner) - (beside in self._by_owner)


class RunLog:
    """Events ``[first, next)``, each as it went out; the oldest are dropped beyond ``limit``
    bytes. ``beside``: bytes that are kept as long as the log is."""

    def __init__(
        self, limit: int, memory: RunMemory | None = None, owner: str = "", *, beside: int = 0
    ) -> None:
        self._memory = memory or RunMemory()
        self._owner = owner
        self.first = 0
        self.size = 0
        self.ended = False
        self._limit = limit
        self._events: deque[bytes] = deque()
        self._begun: list[bytes] = []  # pieces of an event that is not whole yet
        self._waiting: set[asyncio.Future[None]] = set()
        self._beside = beside
        self._memory.add(owner, beside)

    @property
    def next(self) -> int:
        return self.first + len(self._events)

    def append(self, chunk: bytes) -> None:
        """``chunk``: SSE events, numbered here; the last one may go on in the next chunk."""
        if not chunk.endswith(_END):
            self._begun.append(chunk)
            return
        if self._begun:
            chunk = b"".join([*self._begun, chunk])
            self._begun = []
        before = self.size
        for event in chunk.split(_END)[:-1]:
            numbered = b"id: %d\n%b%b" % (self.next, event, _END)
            self._events.append(numbered)
            self.size += len(numbered)
        # The last event tells how it ended: it stays, however long it is.
        while self.size > self._limit and len(self._events) > 1:
            self.size -= len(self._events.popleft())
            self.first += 1
        self._memory.add(self._owner, self.size - before)
        self._wake()

    def release(self) -> None:
        """Nobody can ask for it any more; whoever still reads it does so to its end."""
        self._memory.add(self._owner, -self.size - self._beside)
        self._memory = RunMemory()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def since(self, number: int) -> bytes:
        """The bytes of all events from ``number`` on, which must not be before ``first``."""
        pieces: list[bytes] = []
        while number < self.next:
            piece, number = self.piece(number)
            pieces.append(piece)
        return b"".join(pieces)

    def piece(self, number: int) -> tuple[bytes, int]:
        """The events from ``number`` on that fit ``RUN_PIECE_BYTES``, but at least one if there is
        one, and the number of the event after them. ``number`` must not be before ``first``."""
        events, place = self._events, number - self.first
        if place >= len(events):
            return b"", number
        if place == len(events) - 1:
            return events[-1], number + 1
        held, size = [events[place]], len(events[place])
        for index in range(place + 1, len(events)):
            size += len(events[index])
            if size > RUN_PIECE_BYTES:
                break
            held.append(events[index])
        return held[0] if len(held) == 1 else b"".join(held), number + len(held)

    @contextmanager
    def sending(self, piece: bytes) -> Iterator[None]:
        """While a reader is being sent a piece, it counts like what is kept."""
        memory = self._memory
        memory.add(self._owner, len(piece))
        try:
            yield
        finally:
            memory.add(self._owner, -len(piece))

    async def grown(self) -> None:
        """Until something is appended or the log ends."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class RunListener(Protocol):
    """An API that reports on a run in another way than by its stream."""

    @property
    def body(self) -> bytes: ...

    def stopping(self) -> None:
        """The run is about to be stopped because no client reads it."""

    def ended(self, run: Run) -> None:
        """Its last event is in the log."""


class Run:
    """One generation whose stream is kept. ``owner``: the digest of the key that began it."""

    def __init__(
        self,
        run_id: str,
        owner: str,
        generation: Generation,
        log: RunLog,
        *,
        timeout: float,
        background: bool,
        subject: RunListener | None = None,
    ) -> None:
        self.subject = subject
        self.id = run_id
        self.owner = owner
        self.log = log
        self._generation = generation
        self._timeout = timeout
        self._background = background
        self._readers = 0
        self._idle: asyncio.TimerHandle | None = None
        self._watch_readers()

    async def pump(self, events: AsyncGenerator[bytes, None]) -> None:
        """Take the stream in to its end, whatever that is."""
        try:
            async for chunk in events:
                self.log.append(chunk)
        finally:
            if self._idle is not None:
                self._idle.cancel()
            self.log.end()

    def stop(self, reason: str) -> None:
        """End it now, as its API ends a stream that failed; its blocks are freed."""
        if self.log.ended:
            return
        if self.subject is not None:
            self.subject.stopping()
        self._generation.fail(ClientGoneError(reason))

    async def follow(self, number: int, lost: Callable[[], bytes]) -> AsyncGenerator[bytes, None]:
        """Event ``number`` and all after it, live. ``lost`` gives the API's error event for a
        reader that fell behind what is kept. See ``check_readers``."""
        log = self.log
        self._readers += 1
        self._watch_readers()
        try:
            while True:
                if number < log.first:
                    yield lost()
                    return
                piece, number = log.piece(number)
                if piece:
                    with log.sending(piece):
                        yield piece
                elif log.ended:
                    return
                else:
                    await log.grown()
        finally:
            self._readers -= 1
            self._watch_readers()

    def check_readers(self) -> None:
        """Raises OverloadedError when it has as many readers as it may."""
        if self._readers >= MOST_READERS:
            raise OverloadedError(
                f"This stream has {MOST_READERS} readers, the limit; close one or retry."
            )

    def _watch_readers(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._readers == 0 and not self._background and not self.log.ended:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(
                self._timeout,
                self.stop,
                f"No client read the stream for {self._timeout:g} seconds.",
            )


class RunRegistry:
    """The runs of one worker, by id."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._memory = RunMemory()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, caller: Caller) -> None:
        """Raises OverloadedError when the runs that are still going fill the memory for them, or,
        where several keys share it, this key's fill its share. A key that has none is let in."""
        self._drop_ended()
        memory, owner, total = self._memory, caller.owner, self._limits.total_bytes
        if not caller.shares:
            if memory.used >= total:
                raise OverloadedError("The memory for resumable streams is full; retry later.")
            return
        most = share(total, memory.owners(beside=owner))
        ended = [run for run in self._runs.values() if run.owner == owner and run.log.ended]
        for run in ended:
            if memory.of(owner) < most and memory.used < total:
                return
            self.forget(run.id)
        if memory.of(owner) and (memory.of(owner) >= most or memory.used >= total):
            raise OverloadedError("This key's share for resumable streams is full; retry later.")

    def start(
        self,
        run_id: str,
        owner: str,
        generation: Generation,
        events: AsyncGenerator[bytes, None],
        *,
        background: bool = False,
        subject: RunListener | None = None,
        held: int = 0,
        on_end: Callable[[], None],
    ) -> Run:
        """``on_end`` is called once, after the last event. A ``background`` run needs no reader.
        ``held``: bytes that its subject keeps."""
        limit = min(self._limits.run_bytes, self._limits.total_bytes)
        log = RunLog(limit, self._memory, owner, beside=held)
        run = Run(
            run_id,
            owner,
            generation,
            log,
            timeout=self._limits.timeout,
            background=background,
            subject=subject,
        )
        self._runs[run_id] = run
        task = asyncio.create_task(self._carry(run, events, on_end), name=f"run-{run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def find(self, run_id: str, owner: str) -> Run | None:
        """None also for another owner's."""
        run = self._runs.get(run_id)
        return run if run is not None and run.owner == owner else None

    def forget(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            run.log.release()

    async def close(self) -> None:
        """After the engine's link is closed, which ends what still ran: let each tell so."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _carry(
        self, run: Run, events: AsyncGenerator[bytes, None], on_end: Callable[[], None]
    ) -> None:
        try:
            await run.pump(events)
        finally:
            on_end()
            if run.subject is not None:
                run.subject.ended(run)
            self._drop_ended()
            asyncio.get_running_loop().call_later(self._limits.timeout, self.forget, run.id)

    def _drop_ended(self) -> None:
        """While there are too many bytes: of the owner that has most, the oldest first."""
        memory = self._memory
        if memory.used <= self._limits.total_bytes:
            return
        ended = [run for run in self._runs.values() if run.log.ended]
        while ended and memory.used > self._limits.total_bytes:
            # Of equals ``max`` takes the first, which is the oldest.
            run = max(ended, key=lambda run: memory.of(run.owner))
            ended.remove(run)
            self.forget(run.id)
