"""Streams that can outlive their connection: written to a bounded log that any reader can follow.

The plain path from engine to socket is not involved. A ``Run`` splits the same stream of SSE bytes
into events, numbers them with ``id:`` lines and keeps them, so that a client whose connection broke
can request the rest and receives exactly the bytes it missed.

Limits: bytes per run (its oldest events are dropped), bytes of all runs and of data being sent to
their readers (ended runs are dropped, then new ones rejected), readers per run, seconds that a run
continues without readers, and seconds it is kept after its end. If several keys share the server,
each has a share of the total bytes.
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
from service.tenants.shares import share

_END = b"\n\n"
# The most to send to a reader at a time, and thus the most that a stalled reader holds.
RUN_PIECE_BYTES = 64 * 1024
MOST_READERS = 64  # of one run


@dataclass(frozen=True, slots=True)
class RunLimits:
    """``timeout``: seconds a run continues without readers, and seconds it is kept after its
    end."""

    timeout: float
    run_bytes: int
    total_bytes: int


class RunMemory:
    """Counts the bytes that all logs hold, including data being sent, in total and per owner."""

    def __init__(self) -> None:
        self.used = 0
        self._by_owner: Counter[str] = Counter()

    def add(self, owner: str, size: int) -> None:
        """Add ``size`` bytes; negative to release them."""
        self.used += size
        self._by_owner[owner] += size
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def of(self, owner: str) -> int:
        return self._by_owner[owner]

    def owners(self, *, beside: str) -> int:
        """Return the number of owners that hold something, without ``beside``."""
        return len(self._by_owner) - (beside in self._by_owner)


class RunLog:
    """Events ``[first, next)``, as they were sent; the oldest are dropped beyond ``limit`` bytes.
    ``beside``: further bytes that are held as long as the log is."""

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
        self._begun: list[bytes] = []  # pieces of an incomplete event
        self._waiting: set[asyncio.Future[None]] = set()
        self._beside = beside
        self._memory.add(owner, beside)

    @property
    def next(self) -> int:
        return self.first + len(self._events)

    def append(self, chunk: bytes) -> None:
        """Append SSE events, numbering them; the last one may continue in the next chunk."""
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
        # The last event says how the run ended, so it is kept regardless of its size.
        while self.size > self._limit and len(self._events) > 1:
            self.size -= len(self._events.popleft())
            self.first += 1
        self._memory.add(self._owner, self.size - before)
        self._wake()

    def release(self) -> None:
        """Stop counting the log's bytes: it can no longer be requested, but current readers still
        finish it."""
        self._memory.add(self._owner, -self.size - self._beside)
        self._memory = RunMemory()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def since(self, number: int) -> bytes:
        """Return the bytes of all events from ``number`` on, which must not be before ``first``."""
        pieces: list[bytes] = []
        while number < self.next:
            piece, number = self.piece(number)
            pieces.append(piece)
        return b"".join(pieces)

    def piece(self, number: int) -> tuple[bytes, int]:
        """Return as many events from ``number`` on as fit into ``RUN_PIECE_BYTES``, but at least
        one if available, and the number of the event after them. ``number`` must not be before
        ``first``."""
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
        """Count a piece as held while it is being sent to a reader."""
        memory = self._memory
        memory.add(self._owner, len(piece))
        try:
            yield
        finally:
            memory.add(self._owner, -len(piece))

    async def grown(self) -> None:
        """Wait until something is appended or the log ends."""
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
    """An API that reports on a run by other means than its stream."""

    @property
    def body(self) -> bytes: ...

    def stopping(self) -> None:
        """Called when the run is about to be stopped because no client reads it."""

    def ended(self, run: Run) -> None:
        """Called when the run's last event is in the log."""


class Run:
    """A generation whose stream is kept. ``owner``: the digest of the key that started it."""

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
        """Append the whole stream to the log, however it ends."""
        try:
            async for chunk in events:
                self.log.append(chunk)
        finally:
            if self._idle is not None:
                self._idle.cancel()
            self.log.end()

    def stop(self, reason: str) -> None:
        """End the run now, in the way its API ends a failed stream; its blocks are freed."""
        if self.log.ended:
            return
        if self.subject is not None:
            self.subject.stopping()
        self._generation.fail(ClientGoneError(reason))

    async def follow(self, number: int, lost: Callable[[], bytes]) -> AsyncGenerator[bytes, None]:
        """Yield event ``number`` and all later ones as they come. ``lost`` returns the API's error
        event for a reader that fell behind the events kept. Call ``check_readers`` first."""
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
        """Raise OverloadedError when the run has the maximum number of readers."""
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
        """Raise OverloadedError when active runs use up the memory for runs, or, if several keys
        share the server, this key's share. A key without runs is always admitted."""
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
        """Start a run. ``on_end`` is called once, after the last event. A ``background`` run needs
        no reader. ``held``: bytes that its subject keeps."""
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
        """Return the run; None if it does not exist or belongs to another owner."""
        run = self._runs.get(run_id)
        return run if run is not None and run.owner == owner else None

    def of_any_owner(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def forget(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            run.log.release()

    async def close(self) -> None:
        """Wait for the runs to report their end. Call it after closing the engine's link, which
        ends them."""
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
        """While over the limit, drop ended runs: those of the largest owner first, oldest first."""
        memory = self._memory
        if memory.used <= self._limits.total_bytes:
            return
        ended = [run for run in self._runs.values() if run.log.ended]
        while ended and memory.used > self._limits.total_bytes:
            # Among equals ``max`` returns the first, which is the oldest.
            run = max(ended, key=lambda run: memory.of(run.owner))
            ended.remove(run)
            self.forget(run.id)
