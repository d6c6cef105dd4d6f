"""The service's end of the engine socket: sends requests and distributes the engine's output.

A single task reads frames. The frame of a step holds tokens of many sequences: each token takes one
dictionary lookup and one append, and each stream is called or woken once. When the engine dies, the
link reconnects until it is closed. Open sequences wait for the next engine and are handed over to
it with their tokens, so that their readers only notice a pause. ``service.engine.handover`` decides
what a death means for each sequence.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.inspected import Inspect, Inspected, WatchSteps
from engine.messages import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Abort,
    EngineStats,
    Fatal,
    FromEngine,
    Heartbeat,
    Loading,
    Ready,
    StepOutputs,
    Working,
    decode_from_engine,
    encode_frame,
)
from engine.queueing import QueueBounds
from observability.logging import get_logger
from service.engine.convictions import Convictions
from service.engine.handing_over import HandingOver, write
from service.engine.handover import Handover
from service.engine.inspections import Inspections
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission, together
from service.engine.suspects import Suspects
from service.engine.trial_turn import TrialTurn
from service.errors import CutByShutdownError, EngineFailedError, QuireError

RETRY_SECONDS = 0.1
_UNREAD_BYTES = 65536

_CUT_BY_SHUTDOWN = "The server shut down before the answer was complete; retry."

_log = get_logger()


class LinkPhase(enum.StrEnum):
    CONNECTING = "connecting"  # the engine's socket does not exist yet
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"  # it was connected and is gone; the link reconnects


@dataclass(frozen=True, slots=True)
class EngineState:
    """``ready`` describes the model once loaded, even while its engine is gone; ``detail`` is for
    humans. ``kept``: handles of the sequences that a lost engine leaves to the next one, or that
    this one inherits from the last."""

    phase: LinkPhase = LinkPhase.CONNECTING
    detail: str = "waiting for the engine"
    ready: Ready | None = None
    kept: frozenset[int] = frozenset()


class Siblings:
    """What the links of several engines share; the only link of a server has its own.
    ``folder``: where the workers of the server know what killed an engine."""

    def __init__(self, folder: Path) -> None:
        self.suspects = Suspects(convictions=Convictions(folder / "convicted"))
        self.handles = itertools.count(1)

    def have_engine(self, number: int) -> bool:
        """True if another engine than this one can continue its sequences."""
        return False

    def lost(self, number: int) -> None:
        """This engine is gone; its sequences wait."""

    def free(self, number: int) -> None:
        """This engine takes new sequences from now on."""

    def objection(self, number: int, ready: Ready) -> str | None:
        """Return why an engine that has loaded cannot be used along with the others."""
        return None


class _UnfitError(Exception):
    """An engine cannot be used along with the others."""


class EngineLink:
    """Open with ``start``, close with ``close``; call all methods on one event loop. ``on_step``
    receives every step and heartbeat, ``on_state`` every change of ``state``. For
    ``restart_timeout`` see ``Handover``. ``number``: the engine's index among ``siblings``."""

    def __init__(
        self,
        socket_path: Path,
        *,
        on_step: Callable[[StepOutputs | Heartbeat], None],
        on_state: Callable[[EngineState], None],
        restart_timeout: float = 0.0,
        number: int = 0,
        siblings: Siblings | None = None,
    ) -> None:
        siblings = siblings or Siblings(socket_path.parent)
        self.number = number
        self.links = (self,)  # as of a pool, see ``service.engine.pool``
        self.state = EngineState()
        self.stats: EngineStats | None = None
        self.last_message_time: float | None = None
        self.step_seconds: float | None = None  # of a long step under way, as last reported
        self.socket_path = socket_path
        self._on_step = on_step
        self._on_state = on_state
        self._siblings = siblings
        self._sequences = OpenSequences()
        self._handover = Handover(
            self._sequences,
            restart_timeout,
            suspects=siblings.suspects,
            turn=TrialTurn(socket_path),
        )
        self._handing_over = HandingOver(
            self._sequences, self._handover, lambda: siblings.free(self.number)
        )
        self._handles = siblings.handles
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_logged = 0.0
        self.inspections = Inspections(self._send)
        self.bounds: QueueBounds | None = None  # of the engine's waiting queue, sent with each
        self.on_submit: Callable[[Submission], None] | None = None  # to be called with each

    # --- lifecycle --------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="engine-link")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._writer is not None:
            self._writer.close()
            self._writer = None  # nothing can be submitted from now on
        self._fail_all(CutByShutdownError(_CUT_BY_SHUTDOWN))

    def expect_no_restart(self) -> None:
        """Fail all sequences if the engine is dead or dies: it is not restarted during shutdown."""
        self._handover.restart_timeout = 0.0
        if self.state.phase is LinkPhase.LOST:
            self._fail_all(CutByShutdownError(_CUT_BY_SHUTDOWN))

    # --- sequences -------------------------------------------------------------------------------

    @property
    def silence(self) -> float:
        """Seconds since the engine's last message; 0 before the first."""
        return silence_since(self.last_message_time)

    @property
    def load_seconds(self) -> float | None:
        """Seconds that the last engine took to load."""
        return self._handover.load_seconds

    @property
    def expects_engine(self) -> bool:
        """True if there is no engine but the next one is expected, so that new sequences wait for
        it."""
        return self._handing_over.is_waiting

    @property
    def waiting_sequences(self) -> int:
        """The number of sequences submitted here that no engine has started to run."""
        return self._sequences.num_waiting

    def predicted_wait(self, waiting: int) -> float | None:
        """Return the seconds until as many waiting sequences have started, at the recent pace; None
        if none started recently."""
        return self._sequences.predicted_wait(waiting)

    @property
    def open_sequences(self) -> OpenSequences:
        """Those that have not ended, running or waiting, to be looked at only."""
        return self._sequences

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        """See ``service.engine.engines.Engines``. A single message carries all choices."""
        if self.on_submit is not None:
            self.on_submit(submission)
        messages = submission.messages(self._handles, self.bounds)
        self._handover.suspects.check(messages[0])
        moment = time.monotonic()  # before the engine can answer
        sent = self._send_or_hold(encode_frame(together(messages)))
        opened = []
        for message in messages:
            sequence = EngineSequence(
                message.handle,
                len(message.prompt_token_ids),
                message.arrival_time,
                waker,
                message,
                submission.caller.owner,
                engine=self.number,
            )
            self._sequences.add(sequence)
            if sent:
                self._sequences.mark_sent(sequence, moment)
            opened.append(sequence)
        return opened

    def _send_or_hold(self, frame: bytes) -> bool:
        """Return False if the message has to wait for its turn or for the next engine. Raises
        ConnectionError."""
        if self._writer is None or self.state.phase is not LinkPhase.READY:
            if not self.expects_engine:
                raise ConnectionError(self.state.detail)
            return False
        return not self._handover.on_trial and write(self._writer, frame)

    @property
    def accepts(self) -> bool:
        """True if new sequences are sent to the engine at once: it is ready and holds no trial."""
        if self._writer is None or self._writer.is_closing() or self._handover.on_trial:
            return False
        return self.state.phase is LinkPhase.READY

    @property
    def _can_continue(self) -> bool:
        """True if another engine can continue what this one stopped."""
        return not self._handover.is_hopeless or self._siblings.have_engine(self.number)

    def release(self) -> list[EngineSequence]:
        """Remove and return the sequences that wait here and that another engine may have."""
        return self._handover.release()

    def abandon(self) -> None:
        """Fail the sequences that wait here if no engine is expected, as there is no other one."""
        if self.state.phase is LinkPhase.LOST and not self.expects_engine:
            self._sequences.fail(self._sequences, EngineFailedError("the engine is gone"))

    def adopt(self, sequences: list[EngineSequence]) -> None:
        """Take over sequences that waited for another engine."""
        for sequence in sequences:
            sequence.engine = self.number
            self._sequences.adopt(sequence)
        if sequences and self._writer is not None and self.state.phase is LinkPhase.READY:
            self._handing_over.begin(self._writer)

    def abort(self, sequences: list[EngineSequence]) -> None:
        """Stop and remove these sequences; those that have ended are ignored."""
        handles = [one.handle for one in sequences if self._sequences.remove(one)]
        self._handing_over.happened()
        if handles:
            self._send(Abort(handles))

    def watch(self, *, every_step: bool) -> None:
        """See ``Inspections.watch``."""
        self.inspections.watch(every_step=every_step)

    def _send(self, message: Abort | Inspect | WatchSteps) -> bool:
        """Return False if there is no engine."""
        if self._writer is None or self.state.phase is not LinkPhase.READY:
            return False
        return write(self._writer, encode_frame(message))

    # --- the socket ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except Exception as error:
                # Catch everything: if the link's task ended here, every request would wait forever.
                if not isinstance(error, OSError | EOFError | ValueError):
                    _log.exception("failed to process a message from the engine")
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
                    ended = isinstance(error, EOFError)
                    reason = "closed by the engine" if ended else str(error) or repr(error)
                    _log.warning("engine connection lost", error=reason)
                    if self.state.phase is not LinkPhase.LOST:  # else it reported the reason itself
                        self._lose("the engine is gone")
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve_connection(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(self.socket_path)
        header = FRAME_HEADER
        while True:
            (size,) = header.unpack(await reader.readexactly(header.size))
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"the engine announced a message of {size} bytes")
            message = decode_from_engine(await reader.readexactly(size))
            self.last_message_time = time.monotonic()
            self.step_seconds = None
            try:
                self._dispatch(message)
            except _UnfitError as error:
                _log.error("an engine cannot be used", engine=self.number, error=str(error))
                self._lose(str(error))
                while await reader.read(_UNREAD_BYTES):
                    pass
                raise EOFError from None

    def _dispatch(self, message: FromEngine) -> None:
        match message:
            case Working():
                self.step_seconds = message.step_seconds
            case StepOutputs():
                self._sequences.apply(message, keep_aborted=self._can_continue)
                self.stats = message.stats
                self._on_step(message)
                if message.phase is not None:
                    self._handover.engine_ran_a_step()
                self._handing_over.happened()
            case Inspected():
                self.inspections.answered(message)
            case Heartbeat():
                self.stats = message.stats
                self._on_step(message)
                self._handing_over.happened()
            case Loading():
                progress = f"{message.done}/{message.total}" if message.total else ""
                detail = f"loading: {message.phase} {progress}".strip()
                self._set_state(EngineState(LinkPhase.LOADING, detail, self.state.ready))
            case Ready():
                if unfit := self._siblings.objection(self.number, message):
                    raise _UnfitError(unfit)
                self._handover.load_seconds = message.load_seconds
                kept = self._sequences.handles()
                self._set_state(EngineState(LinkPhase.READY, "ready", message, kept))
                self.inspections.connected()
                if self._writer is not None:
                    self._handing_over.begin(self._writer)
            case Fatal():
                # Only logged, because the text may hold paths and more, and the state is public.
                _log.error("the engine failed", error=message.error)
                self._lose("the engine failed")

    def _set_state(self, state: EngineState) -> None:
        if state == self.state:
            return
        now = time.monotonic()
        # Loading reports each tensor; log at most one line per second.
        if state.phase is not self.state.phase or now - self._last_logged >= 1.0:
            self._last_logged = now
            _log.info("engine state", phase=state.phase.value, detail=state.detail)
        self.state = state
        try:
            self._on_state(state)
        except Exception:  # otherwise the link could never find the next engine
            _log.exception("failed to process the engine's state")

    # --- from a dead engine to the next -----------------------------------------------------------

    def _lose(self, what: str) -> None:
        self.stats = None
        self.inspections.lost()
        try:
            self._handing_over.engine_lost(what, has_other=self._siblings.have_engine(self.number))
        except Exception:  # catch everything: the link has to find the next engine
            _log.exception("failed to prepare the hand-over to the next engine")
            self._fail_all(EngineFailedError(what))
        detail = f"{what}; waiting for the next one"
        kept = self._sequences.handles()
        self._set_state(EngineState(LinkPhase.LOST, detail, self.state.ready, kept))
        self._siblings.lost(self.number)

    def _fail_all(self, why: QuireError) -> None:
        self._handing_over.stop()
        self._sequences.fail(self._sequences, why)


def silence_since(last_message_time: float | None) -> float:
    """Return the seconds since the last message; 0 before the first."""
    return 0.0 if last_message_time is None else time.monotonic() - last_message_time
