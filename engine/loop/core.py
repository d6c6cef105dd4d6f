"""The core of the engine: receives sequences, schedules and runs steps, reports the results.

It has no access to sockets. Sequences belong to *connections*, which the caller numbers, and are
identified by handles within them. Output for a connection accumulates until the next ``step``,
which returns one ``StepOutputs`` for each connection. Only the start of a sequence is reported
before the model runs.

An error is confined to its sequence: an invalid submission, a sampler's error and an abort end one
sequence. When a whole forward pass raises, its sequences are run again one by one, and only those
that raise again fail. If all of them do, a probe of one token checks whether the model can still
run at all; if not, ``EngineDeadError`` is raised.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Unpack

import msgspec

from engine.constraint.constrained import ConstrainedSequences
from engine.constraint.constraints import Constraints
from engine.errors import RefusedError, told
from engine.loop.entrance import EXPIRED, Entrance
from engine.loop.flight import Flight, Flights, Landed
from engine.loop.ledger import Connection, Ending, Entry, Ledger
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
)
from engine.queueing import WaitingReason
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
    """Combines a scheduler and a runner. Not thread-safe: call it from one thread.

    With a runner that can ``launch``, each step is planned and launched while the previous one is
    still running, on the assumption that each of its sequences gains a token. Sequences that turn
    out to have ended, or to have got no token, are discarded from the step launched too early:
    their results are dropped. So the output to connections is the same either way.
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
        reports_load: bool = False,
        on_admitted: Callable[[Connection, StepOutputs], None] | None = None,
        on_planned: Callable[[int], None] | None = None,
    ) -> None:
        """Without ``constraints``, constrained sequences are rejected. Without
        ``max_decode_slowdown``, only the token budget limits a step's prompt tokens.

        ``on_admitted`` is called with the sequences that start to run, before the step, as it may
        be the engine's last; without it they are reported in ``step``'s outputs. ``on_planned`` is
        called before each step with its number of tokens.
        """
        self.info = runner.info
        self._clock = clock
        self._uids = itertools.count()
        self._constrained = ConstrainedSequences(constraints)
        pacer = _new_pacer(self.info, max_decode_slowdown)
        self.scheduler = _new_scheduler(
            self.info,
            counters=self._constrained.counters,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            pacer=pacer,
        )
        self._ledger = Ledger(clock, reports_load=reports_load)
        self.watch = self._ledger.watch
        self.flights = Flights(
            runner,
            self.scheduler,
            self._ledger,
            new_uid=lambda: next(self._uids),
            clock=clock,
            pacer=pacer,
        )
        self._entrance = Entrance(self.scheduler)
        self._flight: Flight | None = None  # the step in progress, when running ahead
        self._on_admitted = on_admitted
        self._on_planned = on_planned
        self._num_computed = 0

    @property
    def runner(self) -> Runner:
        return self.flights.runner

    # --- input ------------------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        """Make ``step`` return outputs for this connection from now on."""
        self._ledger.open(connection)

    def disconnect(self, connection: Connection) -> None:
        """Drop all sequences of a connection, without reporting it."""
        for entry in self._ledger.entries_of(connection):
            self._remove(entry)
        self._ledger.close(connection)

    def add(self, connection: Connection, submit: Submit) -> None:
        """Queue a sequence and its copies. One that cannot run, or for which there is no place, is
        finished at once, with the reason.

        Raises ProtocolError when a handle is in use on this connection.
        """
        # Checks of a long prompt are done once, not for each of its copies.
        reason = refusal(submit, self.info, max_sequence_len=self.scheduler.max_sequence_len)
        if reason is None and not self._constrained.can_take(submit.task):
            reason = _NO_CONSTRAINTS
        prompt_hashes: list[bytes] = []
        refused = None
        if reason is None:
            first = sequence_of(submit, -1, self.info, prompt_hashes) if submit.deadline else None
            refused = self._entrance.judge(submit, first, self._clock())
        for one in singly(submit):
            self._ledger.require_unused(connection, one.handle)
            if reason is not None:
                self._ledger.reject(connection, one.handle, reason, submit=one, is_refusal=True)
            elif refused is not None:
                self._ledger.reject(
                    connection, one.handle, refused.reason, submit=one, refused=refused
                )
            else:
                sequence = sequence_of(one, next(self._uids), self.info, prompt_hashes)
                self._enter(Entry(connection, one.handle, sequence), submit)

    def _enter(self, entry: Entry, submit: Submit) -> None:
        sequence = entry.sequence
        if sequence.embed is None and is_full(sequence, self.scheduler.max_sequence_len):
            self._ledger.end(entry, FinishReason.LENGTH)
            return
        self._entrance.enter(sequence, submit, self._clock())
        self._ledger.enter(entry)
        if sequence.params.constraint is None:
            self.scheduler.add(sequence)
        else:
            self._constrained.add(sequence)
            self._ledger.answer((), [sequence], 0.0)  # its grammar may take long

    def reject(self, connection: Connection, handle: int, error: str) -> None:
        """Finish a handle that never became a sequence. Raises ProtocolError when the handle is in
        use on this connection."""
        self._ledger.reject(connection, handle, error)

    def abort(self, connection: Connection, handles: list[int]) -> None:
        """Finish these sequences now; unknown handles are ignored."""
        for entry in self._ledger.named(connection, handles):
            self._finish(entry, FinishReason.ABORT)
            self._entrance.cancelled(entry.sequence.request_id)

    def abort_all(self) -> None:
        """Finish every sequence of every connection."""
        for entry in self._ledger.entries():
            self._finish(entry, FinishReason.ABORT)

    # --- a step ------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if ``step`` would run the model or has something to report."""
        if self._flight is not None or not self._ledger.is_silent:
            return True
        if not self._constrained:
            return self.scheduler.has_work
        scheduled = self.scheduler.num_running + self.scheduler.num_waiting
        return self._constrained.has_decided or scheduled > len(self._constrained.sitting_out())

    @property
    def progress(self) -> int:
        """Tokens computed and sequences ended so far. Constant while steps make no progress."""
        return self._num_computed + self._ledger.num_ended

    def step(self) -> dict[Connection, StepOutputs]:
        """Run one step, if there is work, and return the outputs for each connection; those without
        outputs share one message. Raises EngineDeadError."""
        begin = self._ledger.taken_until = self._clock()
        before, self._flight = self._flight, None
        for uid in self._entrance.expired(begin):
            self._finish(self._ledger[uid], FinishReason.ERROR, **EXPIRED)
        plan = self.scheduler.schedule(begin, self._sitting_out(before))
        self._announce(plan, begin)
        this = self.flights.launch(plan, begin)
        figures, stopped = self._land(before)
        this.sample(discarded=stopped)
        if self.flights.runs_ahead and this.is_under_way:
            self._flight = this  # landed after the next one is launched
        else:
            own, _ = self._land(this)
            figures = figures or own
        self._entrance.computed(figures)
        return self._ledger.collect(figures or StepFigures(), self.stats())

    def flush(self) -> dict[Connection, StepOutputs]:
        """Return the outputs, without running a step."""
        return self._ledger.collect(StepFigures(), self.stats())

    def _sitting_out(self, before: Flight | None) -> set[int]:
        """Return the uids of sequences that are left out of the next step. Sequences whose grammar
        is ready, failed or complete are first scheduled or finished."""
        sitting_out: set[int] = set()
        if self._constrained:
            for decided in self._constrained.decide():
                if decided.ends is None:
                    self._entrance.ready(decided.sequence)
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
        """Report what is about to run, because the step may be the engine's last."""
        queued = self._entrance.planned(plan.admitted, begin)
        self._ledger.answer(plan.admitted, queued, begin)
        if plan.preempted or plan.resumed:
            self._ledger.moved(plan, begin)
        if (plan.admitted or queued) and self._on_admitted is not None:
            for connection, outputs in self._ledger.collect_admitted(self.stats()):
                self._on_admitted(connection, outputs)
        if self._on_planned is not None:
            self._on_planned(plan.num_tokens)

    def _land(self, flight: Flight | None) -> tuple[StepFigures | None, set[int]]:
        """Process a step's results. Return its figures, and the uids of sequences that did not
        continue."""
        if flight is None or not flight.plan.scheduled:
            return None, set()
        landed = self.flights.land(flight)
        if landed.plan.num_tokens > len(landed.plan.scheduled):
            self._ledger.prefilled(landed.plan)
        stopped = self._take(landed)
        if landed.doubt is not None:
            self.flights.probe(landed.doubt)
        self._constrained.advance()
        return self.flights.figures(flight), stopped

    def _take(self, landed: Landed) -> set[int]:
        """Process the results that are still valid. Return the uids of sequences that a step
        planned after this one must leave out."""
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
        """Process one sequence's result of a step. True if it continued as planned."""
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
            _log(sequence.request_id, failure)
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

    def _finish(self, entry: Entry, reason: FinishReason, **how: Unpack[Ending]) -> None:
        self._remove(entry)
        self._ledger.end(entry, reason, **how)

    def _remove(self, entry: Entry) -> None:
        uid = entry.sequence.uid
        if not self._constrained.remove(uid):
            self.scheduler.finish(entry.sequence)
        self._ledger.leave(entry)
        self._entrance.left(entry.sequence)
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
            load=self._ledger.load(self.scheduler.running),
        )


def _waiting_reason(
    scheduler: Scheduling, constrained: ConstrainedSequences
) -> WaitingReason | None:
    if scheduler.num_waiting:
        return scheduler.waiting_reason
    return WaitingReason.CONSTRAINT if constrained.num_preparing else None


def _log(request_id: str, failure: Exception) -> None:
    """Log why a sequence failed; a refusal only for debugging, or clients could fill the log."""
    if isinstance(failure, RefusedError):
        logger.debug("sequence %s was refused: %s", request_id, failure)
    else:
        logger.error("sequence %s failed", request_id, exc_info=failure)


def _new_pacer(info: ModelInfo, slowdown: float | None) -> PrefillPacer | None:
    return None if slowdown is None else PrefillPacer(slowdown, info.step_seconds)


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
        # All vectors of a step may have to fit into one message.
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
        enable_prefix_caching=enable_prefix_caching and info.shares_prefixes,
        num_snapshots=info.num_snapshots,
        prompt_logprob_work=info.prompt_logprob_work,
        pacer=pacer,
        counters=counters,
    )
