"""The engine's inside: receives sequences, schedules and runs steps, reports what came of it.

Knows nothing of sockets. Sequences belong to *connections*, which the caller numbers, and are named
by handles within them. Everything a connection is to be told gathers until the next
``step``, which returns one ``StepOutputs`` for each connection. Only who begins to run is told
before the model runs.

An error stays with its sequence: a bad submission, a sampler's error and an abort end one
sequence. When a whole forward pass raises, its sequences are run again one by one, and only those
that raise again fail. When they all do, a probe of one token tells whether the model can still
run at all; if not, ``EngineDeadError`` is raised.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

import msgspec

from engine.constraint.constrained import ConstrainedSequences
from engine.constraint.constraints import Constraints
from engine.errors import RefusedError, told
from engine.loop.flight import Flight, Flights, Landed
from engine.loop.ledger import Connection, Entry, Ledger
from engine.loop.outbox import StepFigures
from engine.loop.submission import refusal, sequence_of, singly
from engine.loop.verdict import is_full, verdict
from engine.messages import (
    MAX_FRAME_BYTES,
    EngineCounters,
    EngineStats,
    FinishReason,
    StepOutputs,
    Submit,
    TokenLogprobs,
    WaitingReason,
)
from engine.schedule.pacing import PrefillPacer
from engine.schedule.scheduler import Scheduler
from engine.schedule.scheduling import Scheduling
from engine.schedule.whole_texts import WholeTextScheduler
from engine.step.runner import Runner
from engine.step.step import (
    ModelInfo,
    PooledVector,
    Sampled,
    SampledToken,
    ScheduledSequence,
    StepPlan,
)

logger = logging.getLogger(__name__)

_NO_CONSTRAINTS = (
    "this engine cannot constrain output: it needs llguidance and a tokenizer.json in the model's "
    "directory"
)


class EngineCore:
    """Ties a scheduler to a runner. Not thread-safe: one thread calls it.

    With a runner that can ``launch``, each step is planned and launched while the one before it
    is still under way, as if every sequence of that one went on by a token. Those that turn out to
    have ended, or to have got no token, are discarded from the step launched too early: their
    results are dropped. So connections are told the same either way.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_prefix_caching: bool = True,
        max_decode_slowdown: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        constraints: Constraints | None = None,
        on_admitted: Callable[[Connection, StepOutputs], None] | None = None,
        on_planned: Callable[[int], None] | None = None,
    ) -> None:
        """Without ``constraints``, sequences that bring one are refused. Without
        ``max_decode_slowdown`` only the budget bounds what a step computes of prompts.

        ``on_admitted`` is called with who begins to run before the step that may be the engine's
        last; without it that is in what ``step`` returns. ``on_planned`` is called before each
        step with its number of tokens."""
        self.info = runner.info
        self._clock = clock
        self._uids = itertools.count()
        self._constrained = ConstrainedSequences(constraints)
        pacer = None if max_decode_slowdown is None else PrefillPacer(max_decode_slowdown)
        self.scheduler = _new_scheduler(
            self.info,
            counters=self._constrained.counters,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            pacer=pacer,
        )
        self._ledger = Ledger(clock)
        self.flights = Flights(
            runner,
            self.scheduler,
            self._ledger,
            new_uid=lambda: next(self._uids),
            clock=clock,
            pacer=pacer,
        )
        self._flight: Flight | None = None  # the step under way, when running ahead
        self._on_admitted = on_admitted
        self._on_planned = on_planned
        self._num_computed = 0

    @property
    def runner(self) -> Runner:
        return self.flights.runner

    # --- what comes in -----------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        """From now on ``step`` returns outputs for this connection."""
        self._ledger.open(connection)

    def disconnect(self, connection: Connection) -> None:
        """Drop all sequences of a connection; it is told nothing any more."""
        for entry in self._ledger.entries_of(connection):
            self._remove(entry)
        self._ledger.close(connection)

    def add(self, connection: Connection, submit: Submit) -> None:
        """Queue a sequence, and its copies. One that cannot run is finished at once, with the
        reason.

        Raises ProtocolError when a handle is in use on this connection.
        """
        # What is true of a long prompt is found out once, not for each of its copies.
        reason = refusal(submit, self.info, max_sequence_len=self.scheduler.max_sequence_len)
        if reason is None and not self._constrained.can_take(submit.task):
            reason = _NO_CONSTRAINTS
        prompt_hashes: list[bytes] = []
        for one in singly(submit):
            self._ledger.require_unused(connection, one.handle)
            if reason is not None:
                self._ledger.reject(connection, one.handle, reason, submit=one, is_refusal=True)
                continue
            sequence = sequence_of(one, next(self._uids), self.info, prompt_hashes)
            self._enter(Entry(connection, one.handle, sequence))

    def _enter(self, entry: Entry) -> None:
        sequence = entry.sequence
        if sequence.embed is None and is_full(sequence, self.scheduler.max_sequence_len):
            self._ledger.end(entry, FinishReason.LENGTH)
            return
        if sequence.params.constraint is None:
            self.scheduler.add(sequence)
        else:
            self._constrained.add(sequence)
        self._ledger.enter(entry)

    def reject(self, connection: Connection, handle: int, error: str) -> None:
        """Finish a handle that never became a sequence.

        Raises ProtocolError when the handle is in use on this connection.
        """
        self._ledger.reject(connection, handle, error)

    def abort(self, connection: Connection, handles: list[int]) -> None:
        """Finish these sequences now; handles that are not live are ignored."""
        for entry in self._ledger.named(connection, handles):
            self._finish(entry, FinishReason.ABORT)

    def abort_all(self) -> None:
        """Finish every sequence of every connection."""
        for entry in self._ledger.entries():
            self._finish(entry, FinishReason.ABORT)

    # --- a step ------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would run the model or has something to report."""
        if self._flight is not None or not self._ledger.is_silent:
            return True
        if not self._constrained:
            return self.scheduler.has_work
        scheduled = self.scheduler.num_running + self.scheduler.num_waiting
        return self._constrained.has_decided or scheduled > len(self._constrained.sitting_out())

    @property
    def progress(self) -> int:
        """Tokens computed and sequences ended so far. It stays the same while steps get nowhere."""
        return self._num_computed + self._ledger.num_ended

    def step(self) -> dict[Connection, StepOutputs]:
        """Run one step, if there is work, and return what each connection is to be told.

        Connections with nothing of their own share one message. Raises EngineDeadError.
        """
        begin = self._clock()
        before, self._flight = self._flight, None
        plan = self.scheduler.schedule(begin, self._sitting_out(before))
        self._announce(plan, begin)
        this = self.flights.launch(plan, begin)
        figures, stopped = self._land(before)
        this.sample(discarded=stopped)
        if self.flights.runs_ahead and this.is_under_way:
            self._flight = this  # lands once the next one is launched
        else:
            own, _ = self._land(this)
            figures = figures or own
        return self._ledger.collect(figures or StepFigures(), self.stats())

    def flush(self) -> dict[Connection, StepOutputs]:
        """What each connection is to be told, without running a step."""
        return self._ledger.collect(StepFigures(), self.stats())

    def _sitting_out(self, before: Flight | None) -> set[int]:
        """Uids of the sequences that have no part in the next step. Those whose grammar is ready,
        failed or at its end are scheduled or finished first."""
        sitting_out: set[int] = set()
        if self._constrained:
            for decided in self._constrained.decide():
                if decided.ends is None:
                    self.scheduler.add(decided.sequence)
                else:
                    entry = self._ledger[decided.sequence.uid]
                    failed = decided.ends is FinishReason.ERROR
                    self._finish(entry, decided.ends, error=decided.error, is_refusal=failed)
            sitting_out = self._constrained.sitting_out()
        if before is not None:
            sitting_out |= self.flights.plan_on(before)
        return sitting_out

    def _announce(self, plan: StepPlan, begin: float) -> None:
        """Report what is about to run, in case the step is the engine's last."""
        for sequence in plan.admitted:
            self._ledger.admit(sequence, begin)
        if plan.admitted and self._on_admitted is not None:
            for connection, outputs in self._ledger.collect_admitted(self.stats()):
                self._on_admitted(connection, outputs)
        if self._on_planned is not None:
            self._on_planned(plan.num_tokens)

    def _land(self, flight: Flight | None) -> tuple[StepFigures | None, set[int]]:
        """Take a step's results: what it was, and the uids of sequences that did not go on."""
        if flight is None or not flight.plan.scheduled:
            return None, set()
        landed = self.flights.land(flight)
        stopped = self._take(landed)
        if landed.doubt is not None:
            self.flights.probe(landed.doubt)
        self._constrained.advance()
        return self.flights.figures(flight), stopped

    def _take(self, landed: Landed) -> set[int]:
        """Take the results that count. The uids of sequences that a step planned after this one
        must leave out."""
        now = self._clock()
        stopped = set(landed.derailed)
        result = landed.result
        for index, item in enumerate(landed.plan.scheduled):
            uid = item.sequence.uid
            if uid in landed.discarded or uid not in self._ledger:
                continue
            prompt_logprobs = result.prompt_logprobs.get(index) if result.prompt_logprobs else None
            if not self._goes_on(item, result.sampled[index], prompt_logprobs, now):
                stopped.add(uid)
        return stopped

    def _goes_on(
        self,
        item: ScheduledSequence,
        sampled: Sampled,
        prompt_logprobs: list[TokenLogprobs] | None,
        now: float,
    ) -> bool:
        """Take one sequence's result of a step. Whether it went on as planned."""
        sequence = item.sequence
        entry = self._ledger[sequence.uid]
        ruling = verdict(item, sampled, self.info, self.scheduler.max_sequence_len)
        if ruling.is_computed:
            self._num_computed += item.num_tokens
            token = sampled if isinstance(sampled, SampledToken) else None
            self.scheduler.update(item, token.token_id if token else None, now)
            if prompt_logprobs:
                self._ledger.prompt_logprobs(entry, item.start, prompt_logprobs)
            if token is not None:
                self._ledger.token(entry, token)
                if sequence.grammar_state is not None and ruling.ends is None:
                    self._constrained.follow(sequence, token.token_id)
            elif isinstance(sampled, PooledVector):
                self._ledger.vector(entry, sampled)
        else:
            self.scheduler.rewind(item)
        if ruling.ends is None:
            return ruling.is_computed
        error, failure = None, ruling.failure
        if failure is not None:
            logger.error("sequence %s failed", sequence.request_id, exc_info=failure)
            error = told(failure)
        self._finish(
            entry,
            ruling.ends,
            stop_token_id=ruling.stop_token_id,
            error=error,
            is_refusal=isinstance(failure, RefusedError),
        )
        return False

    # --- the end of a sequence ---------------------------------------------------------------

    def _finish(
        self,
        entry: Entry,
        reason: FinishReason,
        *,
        stop_token_id: int | None = None,
        error: str | None = None,
        is_refusal: bool = False,
    ) -> None:
        self._remove(entry)
        self._ledger.end(
            entry, reason, stop_token_id=stop_token_id, error=error, is_refusal=is_refusal
        )

    def _remove(self, entry: Entry) -> None:
        uid = entry.sequence.uid
        if not self._constrained.remove(uid):
            self.scheduler.finish(entry.sequence)
        self._ledger.leave(entry)
        self.runner.forget(uid)

    # --- state -------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        blocks = self.scheduler.block_counts()
        return EngineStats(
            *msgspec.structs.astuple(self.scheduler.counters),  # whose fields it inherits
            time=self._clock(),
            running=self.scheduler.num_running,
            waiting=self.scheduler.num_waiting + self._constrained.num_preparing,
            waiting_reason=_waiting_reason(self.scheduler, self._constrained),
            kv_blocks_free=blocks.free,
            kv_blocks_cached=blocks.cached,
            kv_blocks_active=blocks.active,
        )


def _waiting_reason(
    scheduler: Scheduling, constrained: ConstrainedSequences
) -> WaitingReason | None:
    if scheduler.num_waiting:
        return scheduler.waiting_reason
    return WaitingReason.CONSTRAINT if constrained.num_preparing else None


def _new_scheduler(
    info: ModelInfo,
    *,
    counters: EngineCounters,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    enable_prefix_caching: bool,
    pacer: PrefillPacer | None,
) -> Scheduling:
    if info.vector_size:
        # All vectors of a step may have to travel in one message.
        max_num_seqs = min(max_num_seqs, max(1, MAX_FRAME_BYTES // (8 * info.vector_size)))
    if not info.num_kv_blocks:
        return WholeTextScheduler(
            max_model_len=info.max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            counters=counters,
        )
    return Scheduler(
        num_kv_blocks=info.num_kv_blocks,
        block_size=info.block_size,
        max_model_len=info.max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_prefix_caching=enable_prefix_caching,
        pacer=pacer,
        counters=counters,
    )
