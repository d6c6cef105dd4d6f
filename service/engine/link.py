"""The service's end of the engine's socket: submits sequences, spreads what comes back.

One task reads frames. A frame of a step holds tokens of many sequences: each token costs one
dictionary look-up and two appends, and each stream is woken once. When the engine dies, the link
tries to reach it again until closed. Open sequences wait for the engine that comes next and are
handed over to it, tokens and all: their readers notice a pause. What may have killed the last one
runs by itself for a moment, see ``service.engine.suspects``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import itertools
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.messages import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Abort,
    Copy,
    Embed,
    EngineStats,
    Fatal,
    FinishReason,
    FromEngine,
    Generate,
    Heartbeat,
    Loading,
    Ready,
    SamplingParams,
    StepOutputs,
    Submit,
    decode_from_engine,
    encode_frame,
)
from observability.logging import get_logger
from service.engine.sequence import EngineSequence, Waker
from service.engine.suspects import Suspects, crashing_request
from service.errors import (
    CutByShutdownError,
    EngineFailedError,
    EngineUnavailableError,
    QuireError,
)
from service.tenants.caller import Caller
from service.tenants.waiting_places import WaitingPlaces

RETRY_SECONDS = 0.1
ADMISSION_WINDOW_SECONDS = 30.0
_MOST_SUSPECTS = 100  # named in the log

_CUT_BY_SHUTDOWN = "The server shut down before the answer was complete; retry."

_log = get_logger()


class LinkPhase(enum.StrEnum):
    CONNECTING = "connecting"  # the engine's socket is not there yet
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"  # it was there and is gone; the link reconnects


@dataclass(frozen=True, slots=True)
class EngineState:
    """``ready`` describes the model once loaded, also while its engine is gone; ``detail`` says
    what is going on, for people. ``kept``: handles of sequences that a lost engine leaves to the
    next one, or that this one has from the last."""

    phase: LinkPhase = LinkPhase.CONNECTING
    detail: str = "waiting for the engine"
    ready: Ready | None = None
    kept: frozenset[int] = frozenset()


class EngineLink:
    """Open with ``start``, close with ``close``; all methods are called on one event loop.

    ``on_step`` hears every step and heartbeat, ``on_state`` every change of ``state``. Sequences
    wait ``restart_timeout`` seconds for an engine after theirs died, or for one that gets anything
    done; they fail at once if that is 0 or less than the last one took to load.
    """

    def __init__(
        self,
        socket_path: Path,
        *,
        on_step: Callable[[StepOutputs | Heartbeat], None],
        on_state: Callable[[EngineState], None],
        restart_timeout: float = 0.0,
    ) -> None:
        self.state = EngineState()
        self.stats: EngineStats | None = None
        self.last_message_time: float | None = None
        self.load_seconds: float | None = None  # what the last start took
        self._path = socket_path
        self._on_step = on_step
        self._on_state = on_state
        self._restart_timeout = restart_timeout
        self._giving_up: asyncio.TimerHandle | None = None  # while sequences may wait for an engine
        self._lost_since: float | None = None  # None: an engine has run a step since
        self._handing_over: asyncio.Task[None] | None = None
        self._suspects = Suspects()
        self._tried: EngineSequence | None = None  # it is on trial
        self._tried_alone = False
        self._trials: asyncio.Event | None = None  # while there are any: set when something happens
        self._was_at_work: Set[int] = frozenset()  # handles, when the last engine died
        self._sequences: dict[int, EngineSequence] = {}
        self._handles = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting = WaitingPlaces()
        self._unsent: set[int] = set()  # of those, what the engine has not heard of
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
        self._fail_all(CutByShutdownError(_CUT_BY_SHUTDOWN))

    def expect_no_restart(self) -> None:
        """The server shuts down: an engine that dies, or is dead, will not be started again."""
        self._restart_timeout = 0.0
        if self.state.phase is LinkPhase.LOST:
            self._fail_all(CutByShutdownError(_CUT_BY_SHUTDOWN))

    # --- sequences -------------------------------------------------------------------------------

    @property
    def silence(self) -> float:
        """Seconds since the engine was last heard of; 0 before it was."""
        heard = self.last_message_time
        return 0.0 if heard is None else time.monotonic() - heard

    @property
    def expects_engine(self) -> bool:
        """Whether there is none but another is waited for: what is submitted waits too."""
        return self._giving_up is not None

    @property
    def open_sequences(self) -> int:
        return len(self._sequences)

    @property
    def waiting_sequences(self) -> int:
        """Sequences submitted here that the engine has not begun to run."""
        return len(self._waiting)

    def waiting_of(self, owner: str) -> int:
        """How many of them are this owner's."""
        return self._waiting.of(owner)

    def waiting_owners(self, *, beside: str) -> int:
        """How many owners have some, not counting ``beside``."""
        return self._waiting.owners(beside=beside)

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
        caller: Caller,
        priority: int = 0,
        cache_salt: str = "",
        arrival_time: float,
    ) -> EngineSequence:
        """``priority`` and ``cache_salt`` are as the request has them; the engine gets what
        ``caller`` may have. All that goes to the engine comes this way or by ``embed``.

        Raises ConnectionError when there is no engine and none is waited for, ValueError when
        the message is too long to send, CrashingRequestError for what has killed engines."""
        [sequence] = self.submit_choices(
            prompt_token_ids,
            params,
            [params.seed],
            request_id=request_id,
            waker=waker,
            caller=caller,
            priority=priority,
            cache_salt=cache_salt,
            arrival_time=arrival_time,
        )
        return sequence

    def submit_choices(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        seeds: list[int],
        *,
        request_id: str,
        waker: Waker,
        caller: Caller,
        priority: int = 0,
        cache_salt: str = "",
        arrival_time: float,
    ) -> list[EngineSequence]:
        """A sequence for each of ``seeds``, all told by one message. Raises as ``submit`` does."""
        messages = [
            Submit(
                handle=next(self._handles),
                request_id=request_id,
                prompt_token_ids=prompt_token_ids,
                task=Generate(msgspec.structs.replace(params, seed=seed)),
                priority=caller.priority(priority),
                arrival_time=arrival_time,
                cache_salt=caller.cache_salt(cache_salt),
            )
            for seed in seeds
        ]
        self._suspects.check(messages[0])
        copies = [
            Copy(message.handle, seed)
            for message, seed in zip(messages[1:], seeds[1:], strict=True)
        ]
        together = msgspec.structs.replace(messages[0], copies=copies) if copies else messages[0]
        self._tell(encode_frame(together), [message.handle for message in messages])
        return [self._opened(message, waker, caller.owner) for message in messages]

    def embed(
        self,
        prompt_token_ids: list[int],
        *,
        second_text: int | None = None,
        dimensions: int | None = None,
        activate: bool | None = None,
        request_id: str,
        waker: Waker,
        caller: Caller,
        priority: int = 0,
        cache_salt: str = "",
        arrival_time: float,
    ) -> EngineSequence:
        """Ask for a vector, see ``engine.messages.Embed``. Raises as ``submit`` does."""
        message = Submit(
            handle=next(self._handles),
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            task=Embed(second_text=second_text, dimensions=dimensions, activate=activate),
            priority=caller.priority(priority),
            arrival_time=arrival_time,
            cache_salt=caller.cache_salt(cache_salt),
        )
        self._suspects.check(message)
        self._tell(encode_frame(message), [message.handle])
        return self._opened(message, waker, caller.owner)

    def _tell(self, frame: bytes, handles: list[int]) -> None:
        if self._writer is None or self.state.phase is not LinkPhase.READY:
            if self._giving_up is None:
                raise ConnectionError(self.state.detail)
            self._unsent.update(handles)
        elif self._trials is not None or not _write(self._writer, frame):
            self._unsent.update(handles)

    def _opened(self, message: Submit, waker: Waker, owner: str) -> EngineSequence:
        handle = message.handle
        sequence = EngineSequence(
            handle, len(message.prompt_token_ids), message.arrival_time, waker, message, owner
        )
        self._sequences[handle] = sequence
        self._waiting.add(handle, owner)
        return sequence

    def abort(self, sequences: list[EngineSequence]) -> None:
        """Stop these and forget them; those that have ended are left alone."""
        handles = [
            sequence.handle
            for sequence in sequences
            if self._sequences.pop(sequence.handle, None) is not None
        ]
        self._waiting.discard(*handles)
        self._unsent.difference_update(handles)
        self._notice()
        if handles and self._writer is not None and self.state.phase is LinkPhase.READY:
            _write(self._writer, encode_frame(Abort(handles)))

    # --- the socket ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except Exception as error:
                # Whatever it was: a link that ended here would leave every request waiting.
                if not isinstance(error, OSError | EOFError | ValueError):
                    _log.exception("failed to process a message from the engine")
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
                    ended = isinstance(error, EOFError)
                    reason = "closed by the engine" if ended else str(error) or repr(error)
                    _log.warning("engine connection lost", error=reason)
                    if self.state.phase is not LinkPhase.LOST:  # else it said why itself
                        self._lose("the engine is gone")
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
                if message.phase is not None:
                    self._lost_since = None
                self._notice()
            case Heartbeat():
                self.stats = message.stats
                self._on_step(message)
                self._notice()
            case Loading():
                progress = f"{message.done}/{message.total}" if message.total else ""
                detail = f"loading: {message.phase} {progress}".strip()
                self._set_state(EngineState(LinkPhase.LOADING, detail, self.state.ready))
            case Ready():
                self.load_seconds = message.load_seconds
                kept = frozenset(self._sequences)
                self._set_state(EngineState(LinkPhase.READY, "ready", message, kept))
                self._begin_handing_over()
            case Fatal():
                # For operators: the text may hold paths and more, and the state is told to anybody.
                _log.error("the engine failed", error=message.error)
                self._lose("the engine failed")

    def _spread(self, step: StepOutputs) -> None:
        sequences = self._sequences
        now = step.time
        for admitted in step.admitted:
            sequence = sequences.get(admitted.handle)
            if sequence is not None:
                sequence.admit(admitted)
                self._waiting.discard(admitted.handle)
                self._admissions.append(time.monotonic())
        if step.prompt_logprobs or step.embedded:
            self._spread_prompts(step)
        handles = memoryview(step.handles).cast("q")
        for handle, token in zip(handles, memoryview(step.token_ids).cast("i"), strict=True):
            sequence = sequences.get(handle)
            if sequence is not None:
                sequence.tokens.append(token)
                sequence.generated.append(token)
                if sequence.first_token_time is None:
                    sequence.first_token_time = now
                sequence.last_token_time = now
                sequence.waker.wake()
        for entry in sorted(step.logprobs):
            sequence = sequences.get(handles[entry])
            if sequence is not None:
                sequence.logprobs.append(step.logprobs[entry])
        for finished in step.finished:
            if finished.reason is FinishReason.ABORT and not self._restart_is_hopeless:
                continue  # if it is still known here nobody asked: the engine was told to end
            sequence = sequences.pop(finished.handle, None)
            if sequence is not None:
                sequence.end(finished)
                self._waiting.discard(finished.handle)
                sequence.waker.wake()

    def _spread_prompts(self, step: StepOutputs) -> None:
        """What was made of prompts themselves: their logprobs, their vectors."""
        for prompt in step.prompt_logprobs:
            sequence = self._sequences.get(prompt.handle)
            if sequence is not None:
                sequence.add_prompt_logprobs(prompt)
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
        try:
            self._on_state(state)
        except Exception:  # a link that ended here would never find the next engine
            _log.exception("failed to process the engine's state")

    # --- from an engine that died to the next --------------------------------------------------

    def _lose(self, what: str) -> None:
        self.stats = None
        at_work = self._sequences.keys() - set(self._waiting)
        self._log_suspects(at_work)
        self._blame(at_work)
        self._stop_handing_over()
        self._was_at_work = at_work
        if self._restart_is_hopeless:
            self._fail_all(EngineFailedError(what))
        else:
            self._wait_for_the_next()
        for handle, sequence in self._sequences.items():
            self._waiting.add(handle, sequence.owner)
        self._unsent = set(self._sequences)
        kept = frozenset(self._sequences)
        detail = f"{what}; waiting for the next one"
        self._set_state(EngineState(LinkPhase.LOST, detail, self.state.ready, kept))

    def _blame(self, at_work: Set[int]) -> None:
        """Find out who may have killed the engine; fail who has been proved to."""
        queued = set(self._waiting) - self._unsent
        tried = self._tried
        convicted = self._suspects.engine_died(
            [self._sequences[handle] for handle in sorted(at_work)],
            [self._sequences[handle] for handle in sorted(queued)],
            tried=tried if tried is not None and tried.handle in self._sequences else None,
            alone=self._tried_alone,
        )
        if convicted:
            same = [s for s in self._sequences.values() if self._suspects.is_convicted(s)]
            ids = dict.fromkeys(s.message.request_id for s in same if s.message is not None)
            _log.error("refused a request that kills engines", request_ids=" ".join(ids))
            self._fail(same, crashing_request())

    def _wait_for_the_next(self) -> None:
        """Also where nothing is open: what is between two of its sequences goes on too."""
        if self._giving_up is not None:
            return
        seconds = self._restart_timeout
        now = time.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        left = max(0.0, seconds - (now - self._lost_since))
        self._giving_up = asyncio.get_running_loop().call_later(left, self._give_up, seconds)
        if self._sequences:
            _log.info(
                "sequences wait for the next engine",
                count=len(self._sequences),
                timeout_seconds=round(left, 1),
            )

    def _log_suspects(self, at_work: Set[int]) -> None:
        """For whoever looks for the request that kills engines."""
        messages = (self._sequences[handle].message for handle in sorted(at_work))
        ids = list(dict.fromkeys(message.request_id for message in messages if message is not None))
        if ids:
            _log.warning(
                "requests running when the engine died",
                count=len(ids),
                request_ids=" ".join(ids[:_MOST_SUSPECTS]),
            )

    @property
    def _restart_is_hopeless(self) -> bool:
        """Whether nobody need wait: there is no time, or less than the last engine took to load."""
        return self._restart_timeout == 0 or (self.load_seconds or 0.0) > self._restart_timeout

    def _begin_handing_over(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if self._unsent and self._writer is not None:
            if any(self._sequences[handle].trial_tokens for handle in self._unsent):
                self._trials = asyncio.Event()
            self._handing_over = asyncio.create_task(
                self._hand_over(self._writer), name="hand-over"
            )

    async def _hand_over(self, writer: asyncio.StreamWriter) -> None:
        """Give the engine all that waits for it: first come, first served, but for suspects."""
        try:
            if self._trials is not None:
                await self._hold_trials(self._trials, writer)
            while self._unsent:
                for handle in sorted(self._unsent):
                    await self._hand(handle, writer)
        except ConnectionError:
            return  # this engine is gone too, which ``_run`` will see
        self._trials = None
        _log.info("sequences handed over")

    async def _hold_trials(self, happened: asyncio.Event, writer: asyncio.StreamWriter) -> None:
        """Who is accused is alone in the engine; then come those who were at work and are trusted;
        beside them the other suspects, one at a time."""
        suspects = [
            sequence
            for handle in sorted(self._unsent)
            if (sequence := self._sequences[handle]).trial_tokens
        ]
        _log.info("suspects run one at a time", count=len(suspects))
        accused = [sequence for sequence in suspects if self._suspects.is_accused(sequence)]
        if accused:
            await _next(happened)  # an engine that dies by itself does so before its first beat
        for sequence in accused:
            await self._try(sequence, happened, writer, alone=True)
        trusted = [
            sequence
            for handle in sorted(self._was_at_work & self._unsent)
            if not (sequence := self._sequences[handle]).trial_tokens
        ]
        for sequence in trusted:
            await self._hand(sequence.handle, writer)
        for sequence in trusted:
            while self._is_open(sequence) and sequence.life_tokens == 0:
                await _next(happened)
        for sequence in suspects:
            if sequence.trial_tokens:
                await self._try(sequence, happened, writer, alone=False)

    async def _try(
        self,
        sequence: EngineSequence,
        happened: asyncio.Event,
        writer: asyncio.StreamWriter,
        *,
        alone: bool,
    ) -> None:
        """Let a suspect run until it has got as many tokens as make it trusted."""
        if not self._is_open(sequence):
            return
        self._tried, self._tried_alone = sequence, alone
        await self._hand(sequence.handle, writer)
        while self._is_open(sequence) and sequence.life_tokens < sequence.trial_tokens:
            await _next(happened)
        self._tried = None
        self._suspects.acquit(sequence)

    def _is_open(self, sequence: EngineSequence) -> bool:
        return sequence.handle in self._sequences

    def _notice(self) -> None:
        if self._trials is not None:
            self._trials.set()

    async def _hand(self, handle: int, writer: asyncio.StreamWriter) -> None:
        """Send one sequence, no faster than the engine takes them in. Raises ConnectionError."""
        sequence = self._sequences.get(handle)
        if sequence is None or handle not in self._unsent:  # its client has left
            return
        try:
            frame = encode_frame(sequence.resumption())
        except Exception:  # whatever it is: nobody else would end this sequence
            _log.exception("a sequence could not be handed over", handle=handle)
            self._fail([sequence], EngineFailedError("it could not be handed over"))
            return
        if not _write(writer, frame):
            raise ConnectionError("the engine is gone")
        self._unsent.discard(handle)
        sequence.resumed_at = len(sequence.generated)
        sequence.handovers += sequence.deaths > 0
        await writer.drain()

    def _stop_handing_over(self) -> None:
        if self._handing_over is not None:
            self._handing_over.cancel()
            self._handing_over = None
        self._trials = self._tried = None

    def _give_up(self, seconds: float) -> None:
        what = f"the engine died and was not replaced within {seconds:g} s"
        never_begun = [s for s in self._sequences.values() if s.deaths == 0]
        self._fail(never_begun, EngineUnavailableError(f"{what}; retry."))
        self._fail_all(EngineFailedError(what))

    def _fail_all(self, why: QuireError) -> None:
        self._stop_handing_over()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self._fail(list(self._sequences.values()), why)

    def _fail(self, sequences: Iterable[EngineSequence], why: QuireError) -> None:
        for sequence in sequences:
            del self._sequences[sequence.handle]
            self._waiting.discard(sequence.handle)
            self._unsent.discard(sequence.handle)
            sequence.failure = why
            sequence.waker.wake()
        self._notice()


async def _next(happened: asyncio.Event) -> None:
    happened.clear()
    await happened.wait()


def _write(writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """False where the connection has broken: ``_run`` is yet to see it, and uvloop would raise."""
    if writer.is_closing():
        return False
    writer.write(frame)
    return True
