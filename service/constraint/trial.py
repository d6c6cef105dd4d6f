"""Compiles a grammar before it goes to the engine: in a child process, with a time limit.

The engine would survive a bad grammar, but notice it late. Here the request is rejected before
anything is generated, and a grammar that takes too long to compile dies with its process.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from pathlib import Path

import msgspec

from engine.messages import Constraint
from engine.trial_messages import ConvertGrammar, ToTrial, TryGrammar, Verdict
from observability.logging import get_logger
from service.errors import HelperKilledError
from service.supervision.child_worker import (
    KILLED_RETRY_SECONDS,
    ChildDiedError,
    ChildKilledError,
    ChildStartError,
    ChildTooSlowError,
    ChildWorker,
)
from service.tenants.turns import Turns

# Grammars that take longer are rejected. Generous enough for a busy machine.
TRIAL_SECONDS = 2.0
_PROCESSES = 2
# Grammars of common schemas are smaller.
_LARGE_BYTES = 16 * 1024
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 32 * 1024 * 1024
_REMEMBERED = 1024
_MAX_VERDICT_BYTES = 4 * 1024 * 1024

_log = get_logger()


class TrialFailedError(RuntimeError):
    """There is no verdict: the fault is the server's, not the grammar's."""


class GrammarTrial:
    """Compiles in at most two processes, started on demand, which owners use in turn. Verdicts are
    cached."""

    def __init__(self, model: Path) -> None:
        self._processes = [
            ChildWorker(
                "engine.constraint.trial",
                ("--model", str(model)),
                max_answer_bytes=_MAX_VERDICT_BYTES,
            )
            for _ in range(_PROCESSES)
        ]
        # Last in, first out: the second process starts only when there is work for two.
        self._idle = list(self._processes)
        self._turns = Turns(
            _PROCESSES,
            large=_LARGE_BYTES,
            most_waiting=_MOST_WAITING,
            most_bytes=_MOST_WAITING_BYTES,
            what="grammar compilation",
        )
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of grammars that wait for a process."""
        return self._turns.waiting

    @property
    def oldest_wait(self) -> float:
        """Seconds that the oldest of them has waited."""
        return self._turns.oldest_wait

    async def try_out(self, constraint: Constraint, owner: str = "") -> str | None:
        """Return why the engine would reject this constraint; None if it would accept it.

        Raises OverloadedError when too many are waiting, TrialFailedError when there is no verdict,
        HelperKilledError when the process was killed from outside twice.
        """
        key = hashlib.blake2b(msgspec.msgpack.encode(constraint), digest_size=16).digest()
        known = self._verdicts.get(key)
        if known is not None:
            self._verdicts.move_to_end(key)
            return known.error
        begin = time.monotonic()
        verdict = await self._ask(TryGrammar(constraint), owner)
        if verdict.error is not None:
            seconds = round(time.monotonic() - begin, 3)
            _log.info("refused a grammar", seconds=seconds, chars=len(constraint.grammar))
        self._verdicts[key] = verdict
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)
        return verdict.error

    async def to_lark(self, gbnf: str, owner: str = "") -> tuple[str, str | None]:
        """Return the grammar in Lark's notation, and the error if there is none. Raises as
        ``try_out`` does."""
        verdict = await self._ask(ConvertGrammar(gbnf), owner)
        return verdict.grammar or "", verdict.error

    async def _ask(self, request: ToTrial, owner: str) -> Verdict:
        frame = msgspec.msgpack.encode(request)
        async with self._turns.turn(owner, len(frame)):
            process = self._idle.pop()
            try:
                with self._turns.timed():
                    return await process.ask(frame, _verdict, seconds=TRIAL_SECONDS)
            except ChildTooSlowError:
                return Verdict(error=f"it takes more than {TRIAL_SECONDS:.0f} s to compile")
            except ChildDiedError:
                return Verdict(error="it needs too much memory to compile")
            except ChildKilledError as error:
                raise HelperKilledError(
                    "The process that compiles grammars was killed twice, by an operator or by "
                    "the system for lack of memory; retry later.",
                    retry_after=KILLED_RETRY_SECONDS,
                ) from error
            except ChildStartError as error:
                raise TrialFailedError("grammars cannot be compiled on this server") from error
            finally:
                self._idle.append(process)

    async def close(self) -> None:
        for process in self._processes:
            await process.close()


def _verdict(frame: bytes) -> Verdict:
    return msgspec.msgpack.decode(frame, type=Verdict)
