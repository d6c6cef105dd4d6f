"""The service's view of one sequence: the engine's output so far, and what another engine needs to
continue it."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field

import msgspec

from engine.messages import (
    Admitted,
    Finished,
    FinishReason,
    Generate,
    PrefixMiss,
    PromptLogprobs,
    Submit,
    TokenLogprobs,
)
from service.engine.happenings import Happening, LongStep
from service.engine.refusals import refused
from service.engine.rounds import WakeUp, round_of
from service.errors import EngineFailedError, InvalidRequestError, QuireError


class Waker:
    """Wakes one waiting task, or makes one call. Wake-ups before it waits are remembered; several
    count as one.

    The task awaits what ``arm`` returns, if anything, then calls ``clear`` before it processes the
    cause of the wake-up, so that no wake-up is lost while it is busy. ``wait`` does both. After
    ``follow``, the function is called for each wake-up instead, which costs less; it calls
    ``clear`` likewise.
    """

    __slots__ = ("_call", "_future", "_join", "_loop", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # cached: getting it is a system call
        self._woken = False
        self._call: WakeUp | None = None

    @property
    def is_woken(self) -> bool:
        """Whether a wake-up has come since the last ``clear``, while no task waited for one."""
        return self._woken

    def wake(self) -> None:
        future = self._future
        if future is None:
            if not self._woken:
                self._woken = True
                if self._call is not None:
                    self._join(self._call)
        elif not future.done():
            future.set_result(None)

    def follow(self, call: WakeUp) -> None:
        """Make this call soon after each wake-up, also for one that has come already; until
        ``unfollow``. It may still come once after that."""
        self._join = round_of(asyncio.get_running_loop()).add
        self._call = call
        if self._woken:
            self._join(call)

    def unfollow(self) -> None:
        self._call = None

    def arm(self) -> asyncio.Future[None] | None:
        """Return a future for the next wake-up; None if there was one already."""
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


class SequenceState(enum.Enum):
    UNSENT = enum.auto()  # waiting for an engine
    QUEUED = enum.auto()  # sent to an engine that has not started to run it
    RUNNING = enum.auto()
    ENDED = enum.auto()  # finished, failed or aborted


@dataclass(slots=True, eq=False)
class EngineSequence:
    """``message``: the one that submits it; None if the engine does not know the sequence.
    ``owner``: the digest of its key. ``waiting_since``: when it last began to wait for an engine to
    run it. ``engine``: the index of the one that has it, since ``adopted_at`` if another had it
    before. ``generated`` are all tokens, ``logprobs`` what arrived since the reader last took it.
    ``follower``: called soon after tokens have arrived, instead of a wake-up; it must not raise.
    Times are monotonic seconds."""

    handle: int
    prompt_tokens: int
    arrival_time: float
    waker: Waker
    message: Submit | None = None
    owner: str = ""
    waiting_since: float = 0.0
    state: SequenceState = SequenceState.UNSENT
    has_place: bool = False  # in an engine's queue, or had one; it is not refused any more
    had_to_wait: bool = False  # for others to leave an engine's queue, not only for its grammar
    follower: WakeUp | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    vector: bytes | None = None  # little-endian float32
    generated: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    queued_time: float | None = None  # when it was sent to the first engine
    prefix_miss: PrefixMiss | None = None
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished: Finished | None = None
    failure: QuireError | None = None
    prompt_tokens_computed: int = 0  # so far
    happenings: list[Happening] = field(default_factory=list)
    longest_steps: list[LongStep] = field(default_factory=list)  # of its life, once it has ended
    # Between tokens, once it has ended; before, of the gaps that only this sequence has.
    longest_gap: float = 0.0
    deaths: int = 0  # of engines that had this sequence
    resumed_at: int = 0  # number of tokens when the current engine got it
    # See ``service.engine.suspects``.
    trial_tokens: int = 0  # needed from one engine to be trusted again; 0: it is trusted
    late_deaths: int = 0  # of engines that had generated tokens for it
    waiting_deaths: int = 0  # of engines that had not started to run it
    handovers: int = 0  # to engines that replaced a dead one
    engine: int = 0
    adopted_at: float = 0.0

    def admit(self, admitted: Admitted) -> None:
        """Record that an engine has started to run it."""
        if self.first_scheduled_time is None:
            self.first_scheduled_time = admitted.time
            self.cached_tokens = admitted.cached_tokens
            self.prefix_miss = admitted.prefix_miss

    def add_prompt_logprobs(self, piece: PromptLogprobs) -> None:
        """Add prompt logprobs; after a hand-over they start again at the beginning of the
        prompt."""
        known = self.prompt_logprobs
        known += piece.tokens[len(known) - piece.start :]

    def end(self, finished: Finished) -> None:
        """End the sequence. ``finished`` does not include earlier engines, so fill in their
        part."""
        if self.handovers:
            finished = msgspec.structs.replace(
                finished,
                cached_tokens=self.cached_tokens,
                handovers=self.handovers,
                first_scheduled_time=self.first_scheduled_time,
                first_token_time=self.first_token_time,
                last_token_time=self.last_token_time,
            )
        self.finished = finished

    @property
    def is_unanswered(self) -> bool:
        """True if an engine has it and has not said whether it has a place; if it has a deadline,
        as long as it waits, so that its request can still end with a status."""
        if self.state is not SequenceState.QUEUED:
            return False
        return not self.has_place or (
            self.message is not None and self.message.deadline is not None
        )

    @property
    def has_grammar(self) -> bool:
        task = None if self.message is None else self.message.task
        return isinstance(task, Generate) and task.params.constraint is not None

    @property
    def is_open(self) -> bool:
        return self.state is not SequenceState.ENDED

    @property
    def error(self) -> QuireError | None:
        """The error with which it ended, if any."""
        record = self.finished
        if self.failure is not None or record is None:
            return self.failure
        if record.reason in (FinishReason.STOP, FinishReason.LENGTH):
            return None
        if record.refusal is not None:
            return refused(record.refusal)
        if record.is_refusal:
            return InvalidRequestError(f"The model cannot do what was requested: {record.error}.")
        return EngineFailedError(record.error or "the engine stopped this request")

    @property
    def life_tokens(self) -> int:
        """The number of tokens from the current engine, or from the one that just died."""
        return len(self.generated) - self.resumed_at

    def resumption(self) -> Submit:
        """Return the message that lets another engine continue where the last one stopped."""
        message = self.message
        assert message is not None
        if self.has_place:
            message = msgspec.structs.replace(message, keeps_place=True, following=None)
        task = message.task
        if not isinstance(task, Generate):
            return message
        params = task.params
        if len(self.prompt_logprobs) == self.prompt_tokens - 1:  # all of them have arrived
            params = msgspec.structs.replace(params, prompt_logprobs=None)
        task = Generate(params, output_token_ids=self.generated)
        return msgspec.structs.replace(message, task=task)

    def record(self, output_tokens: int, now: float) -> Finished:
        """Return the engine's record; or a substitute if the sequence ended before the engine
        reported it (a stop string, a client that left, a dead engine)."""
        if self.finished is not None and self.finished.output_tokens == output_tokens:
            return msgspec.structs.replace(self.finished, queued_time=self.queued_time)
        return Finished(
            handle=self.handle,
            reason=FinishReason.ERROR if self.failure else FinishReason.ABORT,
            error=None if self.failure is None else self.failure.message,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=output_tokens,
            preemptions=0 if self.finished is None else self.finished.preemptions,
            handovers=self.handovers,
            arrival_time=self.arrival_time,
            queued_time=self.queued_time,
            first_scheduled_time=self.first_scheduled_time,
            first_token_time=self.first_token_time,
            last_token_time=self.last_token_time,
            finished_time=now,
        )
