"""Sends the sequences that wait for an engine, once there is one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from engine.messages import encode_frame
from observability.logging import get_logger
from service.engine.handover import Handover
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState
from service.errors import EngineFailedError

# How often to ask whether another worker's trial is over.
_TURN_SECONDS = 0.05

_log = get_logger()


def write(writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """Return False if the connection is broken but its reader has not noticed yet; uvloop would
    raise."""
    if writer.is_closing():
        return False
    writer.write(frame)
    return True


class HandingOver:
    """Sends sequences in the order that ``handover`` gives. ``on_done`` is called when none is left
    and the engine is free for new ones."""

    def __init__(
        self, sequences: OpenSequences, handover: Handover, on_done: Callable[[], None]
    ) -> None:
        self._sequences = sequences
        self._handover = handover
        self._on_done = on_done
        self._happened = asyncio.Event()  # something that a hand-over may be waiting for
        self._task: asyncio.Task[None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None  # set while sequences may be waiting

    @property
    def is_waiting(self) -> bool:
        """True if there is no engine but the next one is expected."""
        return self._giving_up is not None

    def engine_lost(self, what: str, *, has_other: bool) -> None:
        """Stop, and wait for the next engine if that makes sense. ``has_other``: there is another
        one that can have the sequences."""
        self._stop_sending()
        seconds = self._handover.engine_lost(what, has_other=has_other)
        if seconds is None:
            self._stop_waiting()
        elif self._giving_up is None:
            # Even if nothing is open: a request that is between two of its sequences waits too.
            loop = asyncio.get_running_loop()
            timeout = self._handover.restart_timeout
            self._giving_up = loop.call_later(seconds, self._give_up, timeout)
            if self._sequences and not has_other:
                _log.info(
                    "sequences wait for the next engine",
                    count=len(self._sequences),
                    timeout_seconds=round(seconds, 1),
                )

    def _give_up(self, timeout: float) -> None:
        self._stop_waiting()
        self._handover.give_up(timeout)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def begin(self, writer: asyncio.StreamWriter) -> None:
        """Start sending to an engine that is ready, unless that has begun."""
        self._stop_waiting()
        if self._task is not None and not self._task.done():
            return
        self._handover.prepare()
        if self._handover.on_trial or self._sequences.in_state(SequenceState.UNSENT):
            self._task = asyncio.create_task(self._run(writer), name="hand-over")
        else:
            self._on_done()

    def stop(self) -> None:
        """Neither send nor wait any longer."""
        self._stop_sending()
        self._stop_waiting()

    def _stop_sending(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def happened(self) -> None:
        """The engine sent a message, or a sequence ended."""
        self._happened.set()

    async def _run(self, writer: asyncio.StreamWriter) -> None:
        count = 0
        try:
            for sequence in self._handover.order():
                if sequence is None:
                    await self._wait()
                else:
                    self._resume(sequence, writer)
                    count += 1
                    await writer.drain()  # no faster than the engine can read them
        except ConnectionError:
            return  # this engine is gone too; its link will notice
        except Exception:  # catch everything: new sequences would wait for this task forever
            _log.exception("failed to hand over sequences")
            unsent = self._sequences.in_state(SequenceState.UNSENT)
            self._sequences.fail(unsent, EngineFailedError("it could not be handed over"))
            self._handover.end_trials()
        else:
            _log.info("sequences handed over", count=count)
        self._task = None
        self._on_done()

    async def _wait(self) -> None:
        self._happened.clear()
        timeout = _TURN_SECONDS if self._handover.waits_for_turn else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._happened.wait()

    def _resume(self, sequence: EngineSequence, writer: asyncio.StreamWriter) -> None:
        """Send a sequence to the next engine. Raises ConnectionError."""
        try:
            frame = encode_frame(sequence.resumption())
        except Exception:  # catch everything: nothing else would end this sequence
            _log.exception("failed to hand over a sequence", handle=sequence.handle)
            self._sequences.fail([sequence], EngineFailedError("it could not be handed over"))
            return
        moment = time.monotonic()
        if not write(writer, frame):
            raise ConnectionError("the engine is gone")
        self._sequences.mark_sent(sequence, moment)
