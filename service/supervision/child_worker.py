"""A child process that answers one request at a time over its standard input and output, in frames
of ``engine.messages``. It is started on demand, killed when it takes too long or its answer is no
longer needed, and restarted for the next request. If it is killed from outside, the request is
retried once in a new process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.messages import FRAME_HEADER
from engine.python_command import python_command
from observability.logging import get_logger
from service.supervision.child_process import child_environment, describe_exit

# A process that is not ready by then is killed.
START_SECONDS = 60.0
# When to retry a request whose process was killed twice: a new one should be up by then.
KILLED_RETRY_SECONDS = 5
# A process that has closed its pipes ends within this time.
_END_SECONDS = 10.0
# Signals of a process that crashed by itself: an allocation beyond its limit, a stack overflow. All
# others come from outside: the out-of-memory killer, an operator.
_OWN_SIGNALS = frozenset(
    {
        *(signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL),
        *(signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS),
    }
)

_log = get_logger()

_T = TypeVar("_T")


class ChildStartError(RuntimeError):
    """The process could not be started, or did not become ready."""


class ChildTooSlowError(RuntimeError):
    """It exceeded its time limit and was killed."""


class ChildDiedError(RuntimeError):
    """It ended by itself before it answered, usually because it ran out of memory."""


class ChildKilledError(RuntimeError):
    """It was killed from outside, and so was the one after it."""


class _AnswerTooLongError(Exception):
    pass


class ChildWorker:
    """Runs ``module`` with ``python -m``. The process first receives ``greeting`` and replies with
    any frame when it is ready; after that it answers frames."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        max_answer_bytes: int,
        greeting: Callable[[], bytes] | None = None,
    ) -> None:
        self._command = python_command("-m", module, *arguments)
        self._max_answer_bytes = max_answer_bytes
        self._greeting = greeting
        self._child: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        if self._child is None or self._child.returncode is not None:
            return None
        return self._child.pid

    async def start(self) -> None:
        """Start the process before the first request. Returns once it is ready. Raises
        ChildStartError or ChildKilledError."""
        await self._running()

    async def ask(
        self, request: bytes, read: Callable[[bytes], _T | None], *, seconds: float
    ) -> _T:
        """Return the first result of ``read`` other than None; it is called with each frame of the
        answer. ``seconds`` count from when the process is ready.

        Raises ChildStartError, ChildTooSlowError, ChildDiedError or ChildKilledError, and what
        ``read`` raises.
        """
        try:
            return await self._ask_once(request, read, seconds)
        except ChildKilledError:
            return await self._ask_once(request, read, seconds)

    async def _ask_once(
        self, request: bytes, read: Callable[[bytes], _T | None], seconds: float
    ) -> _T:
        child = await self._running()
        try:
            async with asyncio.timeout(seconds):
                await _write(child, request)
                while (answer := read(await self._read(child))) is None:
                    pass
                return answer
        except TimeoutError as error:
            self._kill()
            raise ChildTooSlowError(f"more than {seconds:g} s") from error
        except _AnswerTooLongError as error:
            self._kill()
            raise ChildDiedError("its answer is too long") from error
        except (OSError, EOFError) as error:
            is_closed, self._child = self._child is not child, None
            if not is_closed and await _was_killed(child):
                raise ChildKilledError("it was killed") from error
            raise ChildDiedError("it ended") from error
        except BaseException:  # the next request must not get this answer
            self._kill()
            raise

    async def _running(self) -> asyncio.subprocess.Process:
        """Return the running process. Cancelling a request does not cancel the start it caused,
        because the next request waits for it."""
        if self._child is not None and self._child.returncode is None:
            return self._child
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, starting: asyncio.Task[asyncio.subprocess.Process]) -> None:
        self._starting = None
        if not starting.cancelled():
            starting.exception()  # retrieved to avoid a warning; waiting tasks get it too

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=child_environment(os.environ),
            )
        except OSError as error:
            raise ChildStartError(str(error)) from error
        try:
            async with asyncio.timeout(START_SECONDS):
                if self._greeting is not None:
                    await _write(child, self._greeting())
                await self._read(child)
        except (TimeoutError, _AnswerTooLongError) as error:
            _kill(child)
            raise ChildStartError("the process did not become ready") from error
        except (OSError, EOFError) as error:
            if await _was_killed(child):
                raise ChildKilledError("it was killed while it started") from error
            raise ChildStartError("the process ended while it started") from error
        except BaseException:
            _kill(child)
            raise
        self._child = child
        return child

    async def _read(self, child: asyncio.subprocess.Process) -> bytes:
        assert child.stdout is not None
        header = await child.stdout.readexactly(FRAME_HEADER.size)
        (size,) = FRAME_HEADER.unpack(header)
        if size > self._max_answer_bytes:
            raise _AnswerTooLongError
        return await child.stdout.readexactly(size)

    def _kill(self) -> None:
        if self._child is not None:
            _kill(self._child)
        self._child = None

    async def close(self) -> None:
        if self._starting is not None:
            starting = self._starting
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        child = self._child
        self._kill()
        if child is not None:
            await child.wait()


def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()


async def _was_killed(child: asyncio.subprocess.Process) -> bool:
    """True if this process, whose pipes have closed, was killed from outside."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            code = await child.wait()
    except TimeoutError:
        return False
    finally:
        _kill(child)
    killed = code < 0 and -code not in _OWN_SIGNALS
    if killed:
        _log.warning("a child process was killed", pid=child.pid, exit=describe_exit(code))
    return killed


async def _write(child: asyncio.subprocess.Process, frame: bytes) -> None:
    """Return once the pipe has accepted nearly all of it."""
    assert child.stdin is not None
    child.stdin.write(FRAME_HEADER.pack(len(frame)))
    child.stdin.write(frame)
    await child.stdin.drain()
