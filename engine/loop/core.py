"""The engine's inside: receives sequences, schedules and runs steps, tells what came of it.

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
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.constraint.constraints import Constraints
from engine.constraint.guided import GuidedSequences
from engine.errors import RefusedError, told
from engine.loop.outbox import Outbox, StepFigures, phase_of, step_outputs
from engine.loop.submission import refusal
from engine.messages import (
    MAX_FRAME_BYTES,
    Admitted,
    Embed,
    Embedded,
    EngineCounters,
    EngineStats,
    Finished,
    FinishReason,
    Generate,
    Pooling,
    PromptLogprobs,
    SamplingParams,
    StepOutputs,
    Submit,
    TokenLogprobs,
    WaitingReason,
)
from engine.schedule.blocks import BlockCounts, OutOfBlocksError
from engine.schedule.pacing import PrefillPacer
from engine.schedule.scheduler import Scheduler
from engine.schedule.whole_texts import InputScheduler
from engine.step.sequence import Sequence
from engine.step.step import (
    DeviceLostError,
    ModelInfo,
    PooledVector,
    Sampled,
    ScheduledSequence,
    StepPlan,
    StepResult,
    StepUnderWay,
    Withheld,
)

logger = logging.getLogger(__name__)

Connection = int

_NO_CONSTRAINTS = (
    "this engine cannot constrain output: it needs llguidance and a tokenizer.json in the model's "
    "directory"
)


_NO_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0)


class EngineDeadError(RuntimeError):
    """No sequence can run any more; the engine must exit."""


class ProtocolError(ValueError):
    """A connection broke the protocol in a way that cannot be pinned on one sequence."""


class Runner(Protocol):
    """Runs a model on a device, one step at a time or one step ahead.

    ``launch``, if it has that: start a step and return while the device computes it. Tokens that
    the step before samples stand as ``PENDING`` in the plan's sequences. It raises as ``execute``
    does, and a launched step's ``sample`` and ``result`` do too.
    """

    @property
    def info(self) -> ModelInfo: ...

    @property
    def launch(self) -> Callable[[StepPlan], StepUnderWay] | None: ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens. Running a plan again must be harmless: it writes the same
        values to the same places. An error that concerns one sequence is returned in its place;
        raising means that the whole step failed. Raises DeviceLostError when no step can work."""
        ...

    def forget(self, uid: int) -> None:
        """This sequence is finished: drop what is kept for it, if anything is."""
        ...


@dataclass(slots=True)
class _Entry:
    """A live sequence and who it belongs to."""

    connection: Connection
    handle: int
    sequence: Sequence


@dataclass(slots=True)
class _Flight:
    """A step under way. ``void``: uids whose results count for nothing, since what came before
    them turned out otherwise than assumed."""

    plan: StepPlan
    step: StepUnderWay
    begin: float
    void: set[int]


class EngineCore:
    """Ties a scheduler to a runner. Not thread-safe: one thread calls it.

    With a runner that can ``launch``, each step is planned and launched while the one before it
    is still under way, on the assumption that every sequence of that one goes on by a token. Those
    that turn out to have ended, or to have got no token, are void in the step launched too early:
    their results are dropped. So what anybody is told is the same as without.
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

        ``on_admitted`` is told who begins to run before the step that may be the engine's last;
        without it that is in what ``step`` returns. ``on_planned`` is told before each step of how
        many tokens it is."""
        self.runner = runner
        self._pacer = None if max_decode_slowdown is None else PrefillPacer(max_decode_slowdown)
        self.info = runner.info
        self._guided = GuidedSequences(constraints)
        self.scheduler = _new_scheduler(
            self.info,
            counters=self._guided.counters,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            pacer=self._pacer,
        )
        self._clock = clock
        self._uids = itertools.count()
        self._entries: dict[int, _Entry] = {}  # by uid
        self._connections: dict[Connection, dict[int, _Entry]] = {}  # live ones, by handle
        self._outboxes: dict[Connection, Outbox] = {}
        self._on_admitted = on_admitted
        self._on_planned = on_planned
        self._progress = 0
        self._flight: _Flight | None = None
        self._concluded_at = 0.0

    # --- what comes in -----------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        """From now on ``step`` returns outputs for this connection."""
        self._connections.setdefault(connection, {})
        self._outboxes.setdefault(connection, Outbox())

    def disconnect(self, connection: Connection) -> None:
        """Drop all sequences of a connection; it is told nothing any more."""
        for entry in list(self._connections.get(connection, {}).values()):
            self._remove(entry)
        self._connections.pop(connection, None)
        self._outboxes.pop(connection, None)

    def add(self, connection: Connection, submit: Submit) -> None:
        """Queue a sequence, and its copies. One that cannot run is finished at once, with the
        reason.

        Raises ProtocolError when a handle is in use on this connection.
        """
        reason = refusal(submit, self.info, max_sequence_len=self.scheduler.max_sequence_len)
        # What is true of a long prompt is found out once, not for each of its copies.
        hashes: list[bytes] = []
        self._add(connection, submit, reason, hashes)
        for copy in submit.copies:
            task = submit.task
            if isinstance(task, Generate):
                params = msgspec.structs.replace(task.params, seed=copy.seed)
                task = msgspec.structs.replace(task, params=params)
            copied = msgspec.structs.replace(submit, handle=copy.handle, task=task, copies=[])
            self._add(connection, copied, reason, hashes)

    def _add(
        self, connection: Connection, submit: Submit, reason: str | None, hashes: list[bytes]
    ) -> None:
        """``reason`` why it cannot run, if it cannot; ``hashes``: of its prompt's blocks, filled
        as they are needed."""
        self._require_unused(connection, submit.handle)
        if reason is not None:
            self.reject(connection, submit.handle, reason, submit=submit, is_refusal=True)
            return
        task = submit.task
        embed = task if isinstance(task, Embed) else None
        params = _NO_SAMPLING if isinstance(task, Embed) else task.params
        if embed is None:
            needs_whole_prompt = params.prompt_logprobs is not None
        else:
            needs_whole_prompt = self.info.pooling is not Pooling.LAST
        sequence = Sequence(
            uid=next(self._uids),
            request_id=submit.request_id,
            token_ids=submit.prompt_token_ids + _output_of(submit),
            num_prompt_tokens=len(submit.prompt_token_ids),
            params=params,
            priority=submit.priority,
            arrival_time=submit.arrival_time,
            cache_salt=submit.cache_salt,
            embed=embed,
            needs_whole_prompt=needs_whole_prompt,
            prompt_hashes=hashes,
        )
        entry = _Entry(connection, submit.handle, sequence)
        if embed is None and self._is_full(sequence):
            self._report(entry, FinishReason.LENGTH)
            return
        if params.constraint is not None:
            if not self._guided.can_constrain:
                self.reject(
                    connection, submit.handle, _NO_CONSTRAINTS, submit=submit, is_refusal=True
                )
                return
            self._guided.add(sequence)
        else:
            self.scheduler.add(sequence)
        self._entries[sequence.uid] = entry
        self._connections[connection][submit.handle] = entry

    def reject(
        self,
        connection: Connection,
        handle: int,
        error: str,
        *,
        submit: Submit | None = None,
        is_refusal: bool = False,
    ) -> None:
        """Finish a handle that never became a sequence. ``is_refusal`` as in ``Finished``.

        Raises ProtocolError when the handle is in use on this connection.
        """
        self._require_unused(connection, handle)
        now = self._clock()
        self._outboxes[connection].finished.append(
            Finished(
                handle=handle,
                reason=FinishReason.ERROR,
                error=error,
                is_refusal=is_refusal,
                prompt_tokens=len(submit.prompt_token_ids) if submit else 0,
                cached_tokens=0,
                output_tokens=len(_output_of(submit)) if submit else 0,
                preemptions=0,
                arrival_time=submit.arrival_time if submit else now,
                first_scheduled_time=None,
                first_token_time=None,
                last_token_time=None,
                finished_time=now,
            )
        )

    def _require_unused(self, connection: Connection, handle: int) -> None:
        if handle in self._connections[connection]:
            raise ProtocolError(f"handle {handle} is already in use")

    def abort(self, connection: Connection, handles: list[int]) -> None:
        """Finish these sequences now; handles that are not live are ignored."""
        live = self._connections[connection]
        for handle in handles:
            entry = live.get(handle)
            if entry is not None:
                self._finish(entry, FinishReason.ABORT)

    def abort_all(self) -> None:
        """Finish every sequence of every connection."""
        for entry in list(self._entries.values()):
            self._finish(entry, FinishReason.ABORT)

    # --- a step ------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would run the model or has something to tell."""
        if self._flight is not None or not all(box.is_empty for box in self._outboxes.values()):
            return True
        if not self._guided:
            return self.scheduler.has_work
        scheduled = self.scheduler.num_running + self.scheduler.num_waiting
        return self._guided.has_settled or scheduled > len(self._guided.held())

    @property
    def progress(self) -> int:
        """Tokens computed and sequences ended so far. It stands still while steps get nowhere."""
        return self._progress

    def step(self) -> dict[Connection, StepOutputs]:
        """Run one step, if there is work, and return what each connection is to be told.

        Connections with nothing of their own share one message. Raises EngineDeadError.
        """
        begin = self._clock()
        held: set[int] = set()
        if self._guided:
            self._settle()
            held = self._guided.held()
        if self._flight is not None:
            held |= self._assume(self._flight)
        plan = self.scheduler.schedule(begin, held)
        for sequence in plan.admitted:
            entry = self._entries[sequence.uid]
            self._outboxes[entry.connection].admitted.append(
                Admitted(entry.handle, begin, sequence.num_cached_tokens)
            )
        if plan.admitted and self._on_admitted is not None:
            self._tell_admitted(self._on_admitted)
        if self._on_planned is not None:
            self._on_planned(plan.num_tokens)
        if self.runner.launch is None:
            return self._collect(self._run(plan, begin))
        return self._collect(self._run_ahead(plan, begin))

    def _tell_admitted(self, tell: Callable[[Connection, StepOutputs], None]) -> None:
        stats = self.stats()
        for connection, box in self._outboxes.items():
            if box.admitted:
                tell(connection, step_outputs(Outbox(admitted=box.admitted), StepFigures(), stats))
                box.admitted = []

    def flush(self) -> dict[Connection, StepOutputs]:
        """What each connection is to be told, without running a step."""
        return self._collect(StepFigures())

    def _settle(self) -> None:
        """Schedule sequences whose grammar is ready; end those whose text is whole or whose
        grammar failed."""
        for settled in self._guided.settle():
            if settled.ends is None:
                self.scheduler.add(settled.sequence)
            else:
                entry = self._entries[settled.sequence.uid]
                refused = settled.ends is FinishReason.ERROR
                self._finish(entry, settled.ends, error=settled.error, is_refusal=refused)

    def _run(self, plan: StepPlan, begin: float) -> StepFigures:
        if not plan.scheduled:
            return StepFigures()
        try:
            result = self._execute(plan)
        except DeviceLostError as error:
            raise EngineDeadError(str(error)) from error
        except Exception as error:
            self._run_singly(plan, error)
        else:
            self._take(plan, result, set())
        self._guided.advance()
        return self._figures(plan, begin)

    def _take(self, plan: StepPlan, result: StepResult, void: set[int]) -> set[int]:
        """Take a step's results but those that are void. The uids of sequences that got no token
        though they should have."""
        now = self._clock()
        without = set()
        for index, item in enumerate(plan.scheduled):
            uid = item.sequence.uid
            if uid in void or uid not in self._entries:
                continue
            prompt_logprobs = result.prompt_logprobs.get(index) if result.prompt_logprobs else None
            sampled = result.sampled[index]
            self._apply(item, sampled, prompt_logprobs, now)
            if isinstance(sampled, Withheld):
                without.add(uid)
        return without

    def _run_singly(self, plan: StepPlan, step_error: Exception) -> None:
        """Run a failed step's sequences one by one; those that raise again fail."""
        if not plan.scheduled:
            return
        logger.error("a step of %d sequences failed", len(plan.scheduled), exc_info=step_error)
        any_ran = False
        for item in plan.scheduled:
            self.scheduler.rewind(item)
        for item in plan.scheduled:
            try:
                result = self._execute(StepPlan((item,)))
            except DeviceLostError as error:
                raise EngineDeadError(str(error)) from error
            except Exception as error:
                self._apply(item, error, None, self._clock())
            else:
                any_ran = True
                prompt_logprobs = result.prompt_logprobs.get(0)
                self._apply(item, result.sampled[0], prompt_logprobs, self._clock())
        if not any_ran:
            self._probe(step_error)

    # --- one step ahead ----------------------------------------------------------------------

    def _assume(self, flight: _Flight) -> set[int]:
        """Go on as if the step under way were done. The uids of sequences that end with it, or
        whose next token cannot be chosen in time."""
        held = set()
        for item in flight.plan.scheduled:
            sequence = item.sequence
            if sequence.uid in flight.void or sequence.uid not in self._entries:
                continue
            self.scheduler.assume(item)
            if not item.samples:
                continue
            slow = sequence.grammar_state is not None and sequence.grammar_state.is_slow
            if slow or sequence.embed is not None or self._is_full(sequence):
                held.add(sequence.uid)
        return held

    def _run_ahead(self, plan: StepPlan, begin: float) -> StepFigures:
        """Launch a step, then conclude the one before it."""
        flight, self._flight = self._flight, None
        launched: StepUnderWay | None = None
        failure: Exception | None = None
        if plan.scheduled:
            assert self.runner.launch is not None
            try:
                launched = self.runner.launch(plan)
            except DeviceLostError as error:
                raise EngineDeadError(str(error)) from error
            except Exception as error:
                failure = error
        figures, void = StepFigures(), set[int]()
        if flight is not None:
            void = self._conclude(flight)
            figures = self._figures(flight.plan, flight.begin)
        if launched is not None:
            void.update(
                item.sequence.uid
                for item in plan.scheduled
                if item.sequence.uid not in self._entries
            )
            try:
                launched.sample(void)
                self._flight = _Flight(plan, launched, begin, void)
            except DeviceLostError as error:
                raise EngineDeadError(str(error)) from error
            except Exception as error:
                failure = error
        if failure is not None:
            self._run_singly(self._rest(plan, void), failure)
            self._guided.advance()
        return figures

    def _conclude(self, flight: _Flight) -> set[int]:
        """Take the results of a step under way. The uids of sequences that did not go on as
        ``_assume`` had it."""
        try:
            result = flight.step.result()
            self._check(flight.plan, result)
        except DeviceLostError as error:
            raise EngineDeadError(str(error)) from error
        except Exception as error:
            self._run_singly(self._rest(flight.plan, flight.void), error)
            void = {item.sequence.uid for item in flight.plan.scheduled}
        else:
            void = self._take(flight.plan, result, flight.void)
        self._guided.advance()
        return void

    def _rest(self, plan: StepPlan, void: set[int]) -> StepPlan:
        """What of a failed step can and should be run again."""
        rest = []
        for item in plan.scheduled:
            if item.sequence.uid in void or item.sequence.uid not in self._entries:
                continue
            if item.is_current:
                rest.append(item)
            else:
                self.scheduler.rewind(item)
        return StepPlan(tuple(rest))

    def _figures(self, plan: StepPlan, begin: float) -> StepFigures:
        now = self._clock()
        figures = StepFigures(
            phase=phase_of(plan),
            # A step launched early waited for the one before it.
            seconds=now - max(begin, self._concluded_at),
            tokens=plan.num_tokens,
            sequences=len(plan.scheduled),
        )
        self._concluded_at = now
        if self._pacer is not None:
            decodes = sum(item.num_tokens == 1 and item.samples for item in plan.scheduled)
            self._pacer.observe(decodes, figures.tokens - decodes, figures.seconds)
        return figures

    # --- running -----------------------------------------------------------------------------

    def _execute(self, plan: StepPlan) -> StepResult:
        result = self.runner.execute(plan)
        self._check(plan, result)
        return result

    def _check(self, plan: StepPlan, result: StepResult) -> None:
        if len(result.sampled) != len(plan.scheduled):
            raise RuntimeError(
                f"the runner answered {len(result.sampled)} of {len(plan.scheduled)} sequences"
            )

    def _probe(self, step_error: Exception) -> None:
        """Compute one token by itself: does the model run at all? Raises EngineDeadError."""
        pool = self.scheduler.pool
        try:
            blocks = [] if pool is None else [pool.allocate()]
        except OutOfBlocksError:
            return  # others hold all blocks, and their own steps will tell
        sequence = Sequence(
            uid=next(self._uids),
            request_id="probe",
            token_ids=[0],
            num_prompt_tokens=1,
            params=_NO_SAMPLING,
            block_table=blocks,
            embed=None if self.info.generates else Embed(),
        )
        try:
            self._execute(StepPlan((ScheduledSequence(sequence, 0, 1, samples=True),)))
        except Exception as error:
            raise EngineDeadError(f"every step fails: {step_error}") from error
        finally:
            if pool is not None:
                pool.release(blocks[0])
            self.runner.forget(sequence.uid)

    def _apply(
        self,
        item: ScheduledSequence,
        sampled: Sampled,
        prompt_logprobs: list[TokenLogprobs] | None,
        now: float,
    ) -> None:
        """Take one sequence's result of a step."""
        sequence = item.sequence
        entry = self._entries[sequence.uid]
        if sampled is None and item.samples:
            sampled = RuntimeError("the runner sampled no token")
        if isinstance(sampled, Exception | Withheld):
            self.scheduler.rewind(item)
        if isinstance(sampled, Exception):
            logger.error("sequence %s failed", sequence.request_id, exc_info=sampled)
            refused = isinstance(sampled, RefusedError)
            self._finish(entry, FinishReason.ERROR, error=told(sampled), is_refusal=refused)
            return
        if isinstance(sampled, Withheld):
            if sampled is Withheld.COMPLETE:
                self._finish(entry, FinishReason.STOP)
            return
        self._progress += item.num_tokens
        if isinstance(sampled, PooledVector):
            self.scheduler.update(item, None, now)
            self._outboxes[entry.connection].embedded.append(Embedded(entry.handle, sampled.data))
            self._finish(entry, FinishReason.STOP)
            return
        self.scheduler.update(item, sampled.token_id if sampled else None, now)
        if prompt_logprobs:
            self._report_prompt_logprobs(entry, item.start, prompt_logprobs)
        if sampled is None:
            return
        self._outboxes[entry.connection].token(entry.handle, sampled)
        if self._is_stop(sequence, sampled.token_id):
            self._finish(entry, FinishReason.STOP, stop_token_id=sampled.token_id)
        elif self._is_full(sequence):
            self._finish(entry, FinishReason.LENGTH)
        elif sequence.grammar_state is not None:
            self._guided.follow(sequence, sampled.token_id)

    def _report_prompt_logprobs(
        self, entry: _Entry, start: int, logprobs: list[TokenLogprobs]
    ) -> None:
        """Report a chunk's prompt logprobs.

        The first of them belongs to token ``start + 1``. After a preemption some come again.
        """
        sequence = entry.sequence
        known = sequence.num_prompt_logprobs
        fresh = logprobs[known - start :] if start <= known else []
        if fresh:
            sequence.num_prompt_logprobs += len(fresh)
            self._outboxes[entry.connection].prompt_logprobs.append(
                PromptLogprobs(entry.handle, known, fresh)
            )

    def _is_stop(self, sequence: Sequence, token_id: int) -> bool:
        params = sequence.params
        if sequence.num_output_tokens < params.min_tokens:
            return False
        if token_id in self.info.eos_token_ids and not params.ignore_eos:
            return True
        return token_id in params.stop_token_ids

    def _is_full(self, sequence: Sequence) -> bool:
        return (
            sequence.num_output_tokens >= sequence.params.max_tokens
            or sequence.num_tokens >= self.scheduler.max_sequence_len
        )

    # --- what goes out -----------------------------------------------------------------------

    def stats(self) -> EngineStats:
        pool = self.scheduler.pool
        blocks = BlockCounts(0, 0, 0) if pool is None else pool.counts()
        return EngineStats(
            *msgspec.structs.astuple(self.scheduler.counters),  # whose fields it inherits
            time=self._clock(),
            running=self.scheduler.num_running,
            waiting=self.scheduler.num_waiting + self._guided.num_preparing,
            waiting_reason=self._waiting_reason(),
            kv_blocks_free=blocks.free,
            kv_blocks_cached=blocks.cached,
            kv_blocks_active=blocks.active,
        )

    def _waiting_reason(self) -> WaitingReason | None:
        if self.scheduler.num_waiting:
            return self.scheduler.waiting_reason
        return WaitingReason.CONSTRAINT if self._guided.num_preparing else None

    def _finish(
        self,
        entry: _Entry,
        reason: FinishReason,
        *,
        stop_token_id: int | None = None,
        error: str | None = None,
        is_refusal: bool = False,
    ) -> None:
        self._remove(entry)
        self._report(entry, reason, stop_token_id=stop_token_id, error=error, is_refusal=is_refusal)

    def _remove(self, entry: _Entry) -> None:
        uid = entry.sequence.uid
        if not self._guided.remove(uid):
            self.scheduler.finish(entry.sequence)
        del self._entries[uid]
        del self._connections[entry.connection][entry.handle]
        self.runner.forget(uid)

    def _report(
        self,
        entry: _Entry,
        reason: FinishReason,
        *,
        stop_token_id: int | None = None,
        error: str | None = None,
        is_refusal: bool = False,
    ) -> None:
        sequence = entry.sequence
        self._progress += 1
        self._outboxes[entry.connection].finished.append(
            Finished(
                handle=entry.handle,
                reason=reason,
                stop_token_id=stop_token_id,
                error=error,
                is_refusal=is_refusal,
                prompt_tokens=sequence.num_prompt_tokens,
                cached_tokens=sequence.num_cached_tokens,
                output_tokens=sequence.num_output_tokens,
                preemptions=sequence.num_preemptions,
                arrival_time=sequence.arrival_time,
                first_scheduled_time=sequence.first_scheduled_time,
                first_token_time=sequence.first_token_time,
                last_token_time=sequence.last_token_time,
                finished_time=self._clock(),
            )
        )

    def _collect(self, figures: StepFigures) -> dict[Connection, StepOutputs]:
        stats = self.stats()
        idle: StepOutputs | None = None
        outputs: dict[Connection, StepOutputs] = {}
        for connection, box in self._outboxes.items():
            if box.is_empty:
                idle = idle or step_outputs(Outbox(), figures, stats)
                outputs[connection] = idle
            else:
                outputs[connection] = step_outputs(box, figures, stats)
                self._outboxes[connection] = Outbox()
        return outputs


def _output_of(submit: Submit) -> list[int]:
    return submit.task.output_token_ids if isinstance(submit.task, Generate) else []


def _new_scheduler(
    info: ModelInfo,
    *,
    counters: EngineCounters,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    enable_prefix_caching: bool,
    pacer: PrefillPacer | None,
) -> Scheduler | InputScheduler:
    if info.vector_size:
        # All vectors of a step may have to travel in one message.
        max_num_seqs = min(max_num_seqs, max(1, MAX_FRAME_BYTES // (8 * info.vector_size)))
    if not info.num_kv_blocks:
        return InputScheduler(
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
