"""Trying a grammar before it goes to the engine: in a child process, within a bound of time.

The engine would survive a bad grammar, but learn of it late. Here the request is refused before
anything is generated, and a grammar that takes too long to compile ends with its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from pathlib import Path

import msgspec

from engine.messages import (
    FRAME_HEADER,
    Constraint,
    ConvertGrammar,
    ToTrial,
    TryGrammar,
    Verdict,
)
from engine.python_command import python_command
from observability.logging import get_logger
from service.child_process import child_environment

# A grammar that takes longer is refused. The time of a compile, on a busy machine too.
TRIAL_SECONDS = 2.0
# A process that is not ready by then is given up.
START_SECONDS = 60.0
# Together this bounds how long a request waits for its verdict behind others.
WAIT_SECONDS = 15.0
_PROCESSES = 2
_REMEMBERED = 1024
_MAX_VERDICT_BYTES = 4 * 1024 * 1024

_log = get_logger()


class TrialFailedError(RuntimeError):
    """No verdict could be had: the fault is ours, not the grammar's."""


class _Process:
    """One child, started when first needed and again after it was ended."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._child: asyncio.subprocess.Process | None = None

    async def ask(self, request: ToTrial) -> Verdict:
        """Raises TrialFailedError."""
        if self._child is None or self._child.returncode is not None:
            await self._start()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        body = msgspec.msgpack.encode(request)
        try:
            child.stdin.write(FRAME_HEADER.pack(len(body)) + body)
            async with asyncio.timeout(TRIAL_SECONDS):
                return await self._read()
        except TimeoutError:
            self._kill()
            return Verdict(error=f"it takes more than {TRIAL_SECONDS:.0f} s to compile")
        except (OSError, EOFError):  # the child is gone: out of memory, as a rule
            self._kill()
            return Verdict(error="it needs too much memory to compile")
        except BaseException:  # nobody will read this answer: the next one must not
            self._kill()
            raise

    async def _start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            *python_command("-m", "engine.constraint.trial", "--model", str(self._model)),
            env=child_environment(os.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._read()
        except BaseException as error:
            self._kill()
            if isinstance(error, TimeoutError | OSError | EOFError):
                raise TrialFailedError("grammars cannot be tried on this server") from error
            raise

    async def _read(self) -> Verdict:
        assert self._child is not None
        assert self._child.stdout is not None
        stdout = self._child.stdout
        (size,) = FRAME_HEADER.unpack(await stdout.readexactly(FRAME_HEADER.size))
        if size > _MAX_VERDICT_BYTES:
            raise EOFError("an answer that is none")
        return msgspec.msgpack.decode(await stdout.readexactly(size), type=Verdict)

    def _kill(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
        self._child = None

    async def close(self) -> None:
        child = self._child
        self._kill()
        if child is not None:
            await child.wait()


class GrammarTrial:
    """Two processes at most, started when first needed. Verdicts are remembered."""

    def __init__(self, model: Path) -> None:
        self._model = model
        # Last in, first out: the second process starts only when there is work for two.
        self._idle: asyncio.LifoQueue[_Process] | None = None
        self._processes: list[_Process] = []
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()

    async def try_out(self, constraint: Constraint) -> str | None:
        """Why the engine would not take this constraint; None if it would.

        Raises TrialFailedError when that cannot be told.
        """
        key = hashlib.blake2b(msgspec.msgpack.encode(constraint), digest_size=16).digest()
        known = self._verdicts.get(key)
        if known is not None:
            self._verdicts.move_to_end(key)
            return known.error
        begin = time.monotonic()
        verdict = await self._ask(TryGrammar(constraint))
        if verdict.error is not None:
            seconds = round(time.monotonic() - begin, 3)
            _log.info("a grammar is refused", seconds=seconds, chars=len(constraint.grammar))
        self._verdicts[key] = verdict
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)
        return verdict.error

    async def to_lark(self, gbnf: str) -> tuple[str, str | None]:
        """The grammar in Lark's notation, and why there is none. Raises TrialFailedError."""
        verdict = await self._ask(ConvertGrammar(gbnf))
        return verdict.grammar or "", verdict.error

    async def _ask(self, request: ToTrial) -> Verdict:
        if self._idle is None:
            self._idle = asyncio.LifoQueue()
            self._processes = [_Process(self._model) for _ in range(_PROCESSES)]
            for process in self._processes:
                self._idle.put_nowait(process)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                process = await self._idle.get()
        except TimeoutError:
            raise TrialFailedError("too many grammars wait to be tried") from None
        try:
            return await process.ask(request)
        finally:
            self._idle.put_nowait(process)

    async def close(self) -> None:
        for process in self._processes:
            await process.close()
