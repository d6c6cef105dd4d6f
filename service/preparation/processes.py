"""The preparation processes of an API worker: at most two working ones, which owners use in turn,
and a spare. They start on demand, or with the worker if every conversation needs one. A job that
takes too long, or whose client leaves, ends its process; the spare replaces it, so that the next
job does not wait for a process to start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from observability.logging import get_logger
from observability.phases import RENDERING, TOKENIZING
from service.errors import HelperKilledError, InternalError
from service.preparation.jobs import (
    Done,
    Failed,
    Job,
    Noted,
    Prepared,
    Reply,
    Setup,
    Stage,
    error_of,
    too_much_memory,
    too_slow,
)
from service.preparation.sending import unpacked
from service.supervision.child_worker import (
    KILLED_RETRY_SECONDS,
    ChildDiedError,
    ChildKilledError,
    ChildStartError,
    ChildTooSlowError,
    ChildWorker,
)
from service.tenants.turns import Turns
from service.turns import my_turn

JOB_SECONDS = 10.0
# How long an abandoned job may run to finish by itself: a new process costs more.
_GRACE_SECONDS = 0.25
_PROCESSES = 2
_SPARES = 1
_LARGE_BYTES = 256 * 1024
# At least so many may wait, however few may wait for the engine: it may be idle.
_LEAST_WAITING = 1024
_MOST_BYTES = 64 * 1024 * 1024
_MAX_REPLY_BYTES = 64 * 1024 * 1024

_log = get_logger()


class PreparationProcesses:
    """``arguments``: those of each process. ``most_waiting``: how many requests may wait for the
    engine."""

    def __init__(
        self, arguments: tuple[str, ...], setup: Setup, *, most_waiting: int = _LEAST_WAITING
    ) -> None:
        self._processes = [
            ChildWorker(
                "service.preparation",
                arguments,
                max_answer_bytes=_MAX_REPLY_BYTES,
                greeting=lambda: msgspec.msgpack.encode(setup),
            )
            for _ in range(_PROCESSES + _SPARES)
        ]
        self._abandoned: set[asyncio.Task[Done]] = set()
        # Idle ones. Last in, first out: another starts only when it may soon be needed.
        self._stopped = list(self._processes)
        self._ready: asyncio.LifoQueue[ChildWorker] = asyncio.LifoQueue()
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False
        self._turns = Turns(
            _PROCESSES,
            large=_LARGE_BYTES,
            most_waiting=max(_LEAST_WAITING, most_waiting),
            most_bytes=_MOST_BYTES,
            what="preparation",
        )

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [process.pid for process in self._processes if process.pid is not None]

    async def warm_up(self) -> None:
        """Start a process, so that the first job does not wait for it."""
        async with self._turns.turn("", 0):
            self._give_back(await self._take())

    async def _take(self) -> ChildWorker:
        """Return an idle process: one that is running, or the first that becomes available. If that
        leaves none idle, the next one is started at once."""
        if self._ready.empty() and self._stopped:
            self._begin(self._stopped.pop())
        process = await self._ready.get()
        while process.pid is None and not self._ready.empty():  # it was killed while idle
            self._begin(process)
            process = self._ready.get_nowait()
        if self._ready.empty() and self._stopped and not self._starting:
            self._begin(self._stopped.pop())
        return process

    def _begin(self, process: ChildWorker) -> None:
        starting = asyncio.create_task(self._start(process))
        self._starting.add(starting)

        def started(_: asyncio.Task[None]) -> None:
            self._starting.discard(starting)
            self._ready.put_nowait(process)

        starting.add_done_callback(started)

    async def _start(self, process: ChildWorker) -> None:
        try:
            await process.start()
        except (ChildStartError, ChildKilledError) as error:  # the job that takes it tries again
            _log.error("a preparation process failed to start", error=str(error))

    def _give_back(self, process: ChildWorker) -> None:
        if process.pid is not None:
            self._ready.put_nowait(process)
        elif self._closed:
            self._stopped.append(process)
        else:
            self._begin(process)  # before it is needed

    async def run(self, job: Job, noted: Noted, owner: str) -> Prepared:
        """Run a job in a process and return or raise what its step does. ``noted`` gains what the
        step noted. Raises OverloadedError when too much is waiting, InvalidRequestError for a job
        that exceeds its time or memory limit, and HelperKilledError when the process was killed
        from outside twice."""
        if job.size > _LARGE_BYTES:
            await my_turn()  # several that are encoded in one iteration of the loop would hold it
        frame = msgspec.msgpack.encode(job)
        begun = asyncio.Event()
        work = asyncio.create_task(self._in_turn(frame, noted, owner, begun))
        try:
            done = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._abandon(work, _GRACE_SECONDS if begun.is_set() else 0.0)
            raise
        finally:
            # The traceback of what it raises refers to this frame: such a cycle would keep
            # the bodies of refused requests until the next garbage collection.
            del work
        result = await unpacked(job, done)
        _copy(result.noted, noted)
        return result

    def _abandon(self, work: asyncio.Task[Done], seconds: float) -> None:
        """End a job whose client has left, after ``seconds``."""
        self._abandoned.add(work)
        ending = asyncio.get_running_loop().call_later(seconds, work.cancel)

        def ended(_: asyncio.Task[Done]) -> None:
            ending.cancel()
            self._abandoned.discard(work)
            if not work.cancelled():
                work.exception()  # no one is waiting for it

        work.add_done_callback(ended)

    async def _in_turn(self, frame: bytes, noted: Noted, owner: str, begun: asyncio.Event) -> Done:
        async with self._turns.turn(owner, len(frame)):
            begun.set()
            process = await self._take()
            try:
                with self._turns.timed():
                    return await self._ask(process, frame, noted)
            finally:
                self._give_back(process)

    async def _ask(self, process: ChildWorker, frame: bytes, noted: Noted) -> Done:
        reached = Stage("")

        def read(answer: bytes) -> Done | Failed | None:
            nonlocal reached
            found: Reply = msgspec.msgpack.decode(answer, type=Reply)
            if not isinstance(found, Stage):
                return found
            reached = found
            noted.enter(_PHASES.get(found.name), time.monotonic())
            return None

        try:
            reply: Done | Failed = await process.ask(frame, read, seconds=JOB_SECONDS)
        except ChildTooSlowError as error:
            _log.warning("killed a slow preparation process", stage=reached.name, bytes=len(frame))
            raise too_slow(reached, JOB_SECONDS) from error
        except ChildDiedError as error:
            _log.warning("a preparation process died", stage=reached.name, bytes=len(frame))
            raise too_much_memory(reached) from error
        except ChildKilledError as error:
            raise HelperKilledError(
                "The process that prepares requests was killed twice, by an operator or by the "
                "system for lack of memory; retry later.",
                retry_after=KILLED_RETRY_SECONDS,
            ) from error
        except ChildStartError as error:
            raise InternalError("Requests cannot be prepared on this server.") from error
        if isinstance(reply, Done):
            return reply
        if reply.is_last:
            await process.close()
        if reply.trace:
            _log.error("unexpected exception in a preparation process", trace=reply.trace)
        _copy(reply.noted, noted)
        raise error_of(reply)

    async def close(self) -> None:
        self._closed = True
        for work in (*self._abandoned, *self._starting):
            work.cancel()
        for process in self._processes:
            await process.close()


# Those that stages belong to.
_PHASES = {"template": RENDERING, "tokenizer": TOKENIZING}


def _copy(source: Noted, target: Noted) -> None:
    for name in Noted.__struct_fields__:
        setattr(target, name, getattr(source, name))


def arguments_for(
    directory: Path, *, tool_call_parser: str, reasoning_parser: str
) -> tuple[str, ...]:
    """Return the command-line arguments of a preparation process."""
    return (
        *("--model", str(directory)),
        *("--tool-call-parser", tool_call_parser),
        *("--reasoning-parser", reasoning_parser),
    )
