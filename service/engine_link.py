"""The service's end of the engine's socket: submits sequences, spreads what comes back.

One task reads frames. A frame of a step holds tokens of many sequences: each token costs one
dictionary look-up and one append, and each stream is woken once. When the engine dies, every open
sequence fails, and the link tries to reach it again until closed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.messages import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Abort,
    Embed,
    EngineStats,
    Fatal,
    Finished,
    FinishReason,
    FromEngine,
    Heartbeat,
    Loading,
    Ready,
    SamplingParams,
    StepOutputs,
    Submit,
    TokenLogprobs,
    decode_from_engine,
    encode_frame,
)
from observability.logging import get_logger
from service.errors import CutByShutdownError, EngineFailedError, QuireError

RETRY_SECONDS = 0.1
ADMISSION_WINDOW_SECONDS = 30.0

_log = get_logger()


class LinkPhase(enum.StrEnum):
    CONNECTING = "connecting"  # the engine's socket is not there yet
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"  # it was there and is gone; the link reconnects


@dataclass(frozen=True, slots=True)
class EngineState:
    """``ready`` describes the model once loaded; ``detail`` says what is going on, for people."""

    phase: LinkPhase = LinkPhase.CONNECTING
    detail: str = "waiting for the engine"
    ready: Ready | None = None


class Waker:
    """Wakes one waiting task; wake-ups before it waits are kept, several count as one.

    The task awaits what ``arm`` gives, if anything, then calls ``clear`` before it looks at what
    it was woken for, so that no wake-up is lost while it is busy. ``wait`` is both.
    """

    __slots__ = ("_future", "_loop", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # asking for it is a system call
        self._woken = False

    def wake(self) -> None:
        future = self._future
        if future is None:
            self._woken = True
        elif not future.done():
            future.set_result(None)

    def arm(self) -> asyncio.Future[None] | None:
        """Done at the next wake-up; None when there was one already."""
        if self._woken:
            return None
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        return future

    def clear(self) -> None:
        self._future = None
        self._woken = False

    async def wait(self) -> None:
        future = self.arm()
        if future is not None:
            await future
        self.clear()


@dataclass(slots=True, eq=False)
class EngineSequence:
    """What the engine has said of one sequence. ``tokens`` and ``logprobs`` hold what arrived
    since the reader last took it. Times are monotonic seconds."""

    handle: int
    prompt_tokens: int
    arrival_time: float
    waker: Waker
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None
    vector: bytes | None = None  # little-endian float32, of a sequence that asked for one
    cached_tokens: int = 0
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished: Finished | None = None
    failure: QuireError | None = None

    def record(self, output_tokens: int, now: float) -> Finished:
        """The engine's record; or what is known here, for a sequence that ended before the engine
        said so (a stop string, a client that left, a dead engine)."""
        if self.finished is not None and self.finished.output_tokens == output_tokens:
            return self.finished
        return Finished(
            handle=self.handle,
            reason=FinishReason.ERROR if self.failure else FinishReason.ABORT,
            error=None if self.failure is None else self.failure.message,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=output_tokens,
            preemptions=0 if self.finished is None else self.finished.preemptions,
            arrival_time=self.arrival_time,
            first_scheduled_time=self.first_scheduled_time,
            first_token_time=self.first_token_time,
            last_token_time=self.last_token_time,
            finished_time=now,
        )


class EngineLink:
    """Open with ``start``, close with ``close``; all methods are called on one event loop.

    ``on_step`` hears every step and heartbeat, ``on_state`` every change of ``state``.
    """

    def __init__(
        self,
        socket_path: Path,
        *,
        on_step: Callable[[StepOutputs | Heartbeat], None],
        on_state: Callable[[EngineState], None],
    ) -> None:
        self.state = EngineState()
        self.stats: EngineStats | None = None
        self.last_message_time: float | None = None
        self.load_seconds: float | None = None  # what the last start took
        self._path = socket_path
        self._on_step = on_step
        self._on_state = on_state
        self._sequences: dict[int, EngineSequence] = {}
        self._handles = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[int] = set()
        self._last_logged = 0.0
        self._admissions: collections.deque[float] = collections.deque(maxlen=4096)

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="engine-link")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._writer is not None:
            self._writer.close()
            self._writer = None  # nothing can be submitted any more
        self._fail_all(
            CutByShutdownError("The server shut down before the answer was complete; retry.")
        )

    # --- sequences -------------------------------------------------------------------------------

    @property
    def silence(self) -> float:
        """Seconds since the engine was last heard of; 0 before it was."""
        heard = self.last_message_time
        return 0.0 if heard is None else time.monotonic() - heard

    @property
    def open_sequences(self) -> int:
        return len(self._sequences)

    @property
    def waiting_sequences(self) -> int:
        """Sequences submitted here that the engine has not begun to run."""
        return len(self._waiting)

    def admissions_per_second(self) -> float | None:
        """How fast sequences left the queue lately; None when none did."""
        now = time.monotonic()
        admissions = self._admissions
        while admissions and admissions[0] < now - ADMISSION_WINDOW_SECONDS:
            admissions.popleft()
        if len(admissions) < 2:
            return None
        return len(admissions) / max(now - admissions[0], 1e-3)

    def submit(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        request_id: str,
        waker: Waker,
        priority: int = 0,
        cache_salt: str = "",
        arrival_time: float,
    ) -> EngineSequence:
        """Raises ConnectionError when the engine is not ready, ValueError when the message is too
        long to send."""
        message = Submit(
            handle=next(self._handles),
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            params=params,
            priority=priority,
            arrival_time=arrival_time,
            cache_salt=cache_salt,
        )
        return self._send(message, waker)

    def embed(
        self,
        prompt_token_ids: list[int],
        *,
        second_text: int | None = None,
        dimensions: int | None = None,
        activate: bool | None = None,
        request_id: str,
        waker: Waker,
        priority: int = 0,
        cache_salt: str = "",
        arrival_time: float,
    ) -> EngineSequence:
        """Ask for a vector, see ``engine.messages.Embed``. Raises as ``submit`` does."""
        message = Embed(
            handle=next(self._handles),
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            second_text=second_text,
            dimensions=dimensions,
            activate=activate,
            priority=priority,
            arrival_time=arrival_time,
            cache_salt=cache_salt,
        )
        return self._send(message, waker)

    def _send(self, message: Submit | Embed, waker: Waker) -> EngineSequence:
        if self._writer is None or self.state.phase is not LinkPhase.READY:
            raise ConnectionError(self.state.detail)
        self._writer.write(encode_frame(message))
        handle = message.handle
        sequence = EngineSequence(
            handle, len(message.prompt_token_ids), message.arrival_time, waker
        )
        self._sequences[handle] = sequence
        self._waiting.add(handle)
        return sequence

    def abort(self, sequences: list[EngineSequence]) -> None:
        """Stop these and forget them; those that have ended are left alone."""
        handles = [
            sequence.handle
            for sequence in sequences
            if self._sequences.pop(sequence.handle, None) is not None
        ]
        self._waiting.difference_update(handles)
        if handles and self._writer is not None:
            self._writer.write(encode_frame(Abort(handles)))

    # --- the socket ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except Exception as error:
                # Whatever it was: a link that ended here would leave every request waiting.
                if not isinstance(error, OSError | EOFError | ValueError):
                    _log.exception("the engine's message could not be taken in")
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
                    _log.warning("engine connection lost", error=str(error))
                    if self.state.phase is not LinkPhase.LOST:  # else it said why itself
                        self._lose("the engine is gone, waiting for it to come back")
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve_connection(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(self._path)
        header = FRAME_HEADER
        while True:
            (size,) = header.unpack(await reader.readexactly(header.size))
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"the engine announced a message of {size} bytes")
            message = decode_from_engine(await reader.readexactly(size))
            self.last_message_time = time.monotonic()
            self._dispatch(message)

    def _dispatch(self, message: FromEngine) -> None:
        match message:
            case StepOutputs():
                self._spread(message)
                self.stats = message.stats
                self._on_step(message)
            case Heartbeat():
                self.stats = message.stats
                self._on_step(message)
            case Loading():
                progress = f"{message.done}/{message.total}" if message.total else ""
                self._set_state(
                    EngineState(LinkPhase.LOADING, f"loading: {message.phase} {progress}".strip())
                )
            case Ready():
                self.load_seconds = message.load_seconds
                self._set_state(EngineState(LinkPhase.READY, "ready", message))
            case Fatal():
                self._lose(f"the engine failed: {message.error}")

    def _spread(self, step: StepOutputs) -> None:
        sequences = self._sequences
        now = step.time
        for admitted in step.admitted:
            sequence = sequences.get(admitted.handle)
            if sequence is not None:
                sequence.first_scheduled_time = admitted.time
                sequence.cached_tokens = admitted.cached_tokens
                self._waiting.discard(admitted.handle)
                self._admissions.append(time.monotonic())
        if step.prompt_logprobs or step.embedded:
            self._spread_prompts(step)
        handles = memoryview(step.handles).cast("q")
        for handle, token in zip(handles, memoryview(step.token_ids).cast("i"), strict=True):
            sequence = sequences.get(handle)
            if sequence is not None:
                sequence.tokens.append(token)
                if sequence.first_token_time is None:
                    sequence.first_token_time = now
                sequence.last_token_time = now
                sequence.waker.wake()
        for entry in sorted(step.logprobs):
            sequence = sequences.get(handles[entry])
            if sequence is not None:
                sequence.logprobs.append(step.logprobs[entry])
        for finished in step.finished:
            sequence = sequences.pop(finished.handle, None)
            if sequence is not None:
                sequence.finished = finished
                self._waiting.discard(finished.handle)
                sequence.waker.wake()

    def _spread_prompts(self, step: StepOutputs) -> None:
        """What was made of prompts themselves: their logprobs, their vectors."""
        for prompt in step.prompt_logprobs:
            sequence = self._sequences.get(prompt.handle)
            if sequence is not None:
                sequence.prompt_logprobs = [*(sequence.prompt_logprobs or ()), *prompt.tokens]
        for embedded in step.embedded:
            sequence = self._sequences.get(embedded.handle)
            if sequence is not None:
                sequence.vector = embedded.vector

    def _set_state(self, state: EngineState) -> None:
        if state == self.state:
            return
        now = time.monotonic()
        # Loading reports each tensor; a line a second tells its story.
        if state.phase is not self.state.phase or now - self._last_logged >= 1.0:
            self._last_logged = now
            _log.info("engine state", phase=state.phase.value, detail=state.detail)
        self.state = state
        self._on_state(state)

    def _lose(self, detail: str) -> None:
        self.stats = None
        self._fail_all(EngineFailedError(detail))
        self._set_state(EngineState(LinkPhase.LOST, detail))

    def _fail_all(self, why: QuireError) -> None:
        sequences, self._sequences = self._sequences, {}
        self._waiting.clear()
        for sequence in sequences.values():
            sequence.failure = why
            sequence.waker.wake()
