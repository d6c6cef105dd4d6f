"""Steps in progress: launched, landed, and run again one sequence at a time if they fail."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Iterator, Set
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from engine.loop.errors import EngineDeadError
from engine.loop.outbox import StepFigures, phase_of
from engine.loop.submission import NO_SAMPLING
from engine.loop.verdict import is_full
from engine.messages import Embed, TokenLogprobs
from engine.schedule.blocks import OutOfBlocksError
from engine.schedule.pacing import PrefillPacer
from engine.schedule.scheduling import Scheduling
from engine.step.runner import Runner
from engine.step.sequence import Sequence
from engine.step.step import (
    DeviceLostError,
    Sampled,
    ScheduledSequence,
    StepPlan,
    StepResult,
    StepUnderWay,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The first of the prompts that are timed before the engine is ready.
_SMALLEST_PROMPT = 64


class Flight(msgspec.Struct, eq=False):
    """A step from its launch to its results. ``step`` None: it failed to launch, or has nothing to
    compute. ``discarded``: uids whose results are invalid, because the previous step did not turn
    out as planned."""

    plan: StepPlan
    begin: float
    step: StepUnderWay | None = None
    failure: Exception | None = None
    discarded: Set[int] = frozenset()

    @property
    def is_under_way(self) -> bool:
        return self.step is not None and self.failure is None

    def sample(self, discarded: Set[int]) -> None:
        """Start sampling tokens, except for ``discarded``. Raises EngineDeadError."""
        self.discarded = discarded
        if self.step is not None:
            self.failure = _attempt(functools.partial(self.step.sample, discarded))[1]


class Landed(msgspec.Struct, frozen=True, eq=False):
    """The results of a step. For a failed one, ``plan`` is what was run again and ``derailed`` its
    uids, which a step planned after it must leave out. ``doubt``: the failure, if running its
    sequences again failed for all of them."""

    plan: StepPlan
    result: StepResult
    discarded: Set[int] = frozenset()
    derailed: Set[int] = frozenset()
    doubt: Exception | None = None


class _Whole:
    """A step of a runner that cannot launch: computed in full when tokens are sampled."""

    def __init__(self, runner: Runner, plan: StepPlan) -> None:
        self._runner = runner
        self._plan = plan
        self._result: StepResult | None = None

    def sample(self, _skipped: object) -> None:
        self._result = self._runner.execute(self._plan)

    def result(self) -> StepResult:
        assert self._result is not None
        return self._result


class Flights:
    """Launches and lands steps. ``live``: uids of the sequences that have not ended."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduling,
        live: Container[int],
        *,
        new_uid: Callable[[], int],
        clock: Callable[[], float],
        pacer: PrefillPacer | None,
    ) -> None:
        self.runner = runner
        self._scheduler = scheduler
        self._live = live
        self._new_uid = new_uid
        self._clock = clock
        self._pacer = pacer
        self._landed_at = 0.0

    @property
    def runs_ahead(self) -> bool:
        """True if a step can be launched before the previous one has landed."""
        return self.runner.launch is not None

    def plan_on(self, flight: Flight) -> set[int]:
        """Plan as if a step in progress had finished. Return the uids of sequences to leave out of
        the next one: they end with this step, or their next token cannot be sampled in time."""
        sitting_out = set()
        limit = self._scheduler.max_sequence_len
        for item in flight.plan.scheduled:
            sequence = item.sequence
            if sequence.uid in flight.discarded or sequence.uid not in self._live:
                continue
            self._scheduler.plan_on(item)
            if not item.completes:
                continue
            slow = sequence.grammar_state is not None and sequence.grammar_state.is_slow
            if slow or sequence.embed is not None or is_full(sequence, limit):
                sitting_out.add(sequence.uid)
        return sitting_out

    def launch(self, plan: StepPlan, begin: float) -> Flight:
        """Launch a step. Raises EngineDeadError."""
        if not plan.scheduled:
            return Flight(plan, begin)
        launch = self.runner.launch
        if launch is None:
            return Flight(plan, begin, _Whole(self.runner, plan))
        return Flight(plan, begin, *_attempt(functools.partial(launch, plan)))

    def land(self, flight: Flight) -> Landed:
        """Wait for a step's results. Raises EngineDeadError."""
        result, failure = None, flight.failure
        if flight.step is not None and failure is None:
            result, failure = _attempt(flight.step.result)
        if result is not None:
            failure = _incomplete(flight.plan, result)
        if failure is not None:
            return self._retry(flight, failure)
        return Landed(flight.plan, result or StepResult([]), flight.discarded)

    def figures(self, flight: Flight) -> StepFigures:
        """Return the figures of a step whose results have been processed."""
        if not flight.plan.scheduled:
            return StepFigures()
        now, plan = self._clock(), flight.plan
        figures = StepFigures(
            phase=phase_of(plan),
            # A step launched early waited for the previous one.
            seconds=now - max(flight.begin, self._landed_at),
            tokens=plan.num_tokens,
            sequences=len(plan.scheduled),
        )
        self._landed_at = now
        if self._pacer is not None:
            decodes = sum(item.num_tokens == 1 and item.completes for item in plan.scheduled)
            work = figures.tokens - decodes + plan.extra_work
            self._pacer.observe(decodes, work, figures.seconds)
        return figures

    # --- after a failure -----------------------------------------------------------------------

    def _retry(self, flight: Flight, failure: Exception) -> Landed:
        """Run a failed step's sequences one by one; those that raise again fail."""
        items = self._retryable(flight)
        derailed = {item.sequence.uid for item in flight.plan.scheduled}
        if not items:
            return Landed(StepPlan(()), StepResult([]), derailed=derailed)
        logger.error("a step of %d sequences failed", len(items), exc_info=failure)
        for item in items:
            self._scheduler.rewind(item)
        any_ran = False
        sampled: list[Sampled] = []
        prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
        for index, item in enumerate(items):
            result, error = _attempt(functools.partial(self._execute, StepPlan((item,))))
            if result is None:
                sampled.append(error)
                continue
            any_ran = True
            sampled.append(result.sampled[0])
            if 0 in result.prompt_logprobs:
                prompt_logprobs[index] = result.prompt_logprobs[0]
        return Landed(
            StepPlan(tuple(items)),
            StepResult(sampled, prompt_logprobs),
            derailed=derailed,
            doubt=None if any_ran else failure,
        )

    def _retryable(self, flight: Flight) -> list[ScheduledSequence]:
        """Return the sequences of a failed step that can and should be run again."""
        items = []
        for item in flight.plan.scheduled:
            uid = item.sequence.uid
            if uid in flight.discarded or uid not in self._live:
                continue
            if item.is_current:
                items.append(item)
            else:
                self._scheduler.rewind(item)
        return items

    def calibrate(self, largest: int) -> None:
        """Compute prompts of up to ``largest`` tokens, so that the pacer knows how long they take
        before streams have to wait for one. Raises EngineDeadError."""
        pacer = self._pacer
        if pacer is None or not self.runner.info.generates:
            return
        size = _SMALLEST_PROMPT
        while size <= min(largest, self._scheduler.max_sequence_len):
            seconds, failure = _attempt(functools.partial(self._prompt_seconds, size))
            if seconds is None:
                logger.warning("prompts of %d tokens could not be timed: %s", size, failure)
                return
            pacer.observe(0, size, seconds)
            size *= 2

    def _prompt_seconds(self, size: int) -> float:
        """Return how long a step with only a prompt takes, at the second time: the first may set
        things up."""
        seconds = 0.0
        with self._trial(size) as plan:
            for _ in range(2):
                begin = self._clock()
                self._execute(plan)
                seconds = self._clock() - begin
        return seconds

    def probe(self, doubt: Exception) -> None:
        """Compute a single token to find out whether the model runs at all. Raises
        EngineDeadError."""
        try:
            with self._trial(1) as plan:
                self._execute(plan)
        except OutOfBlocksError:
            return  # sequences hold all blocks, and their own steps will show it
        except Exception as error:
            raise EngineDeadError(f"every step fails: {doubt}") from error

    @contextmanager
    def _trial(self, num_tokens: int) -> Iterator[StepPlan]:
        """Lend blocks to a prompt of no request. Raises OutOfBlocksError."""
        sequence = Sequence(
            uid=self._new_uid(),
            request_id="trial",
            token_ids=[0] * num_tokens,
            num_prompt_tokens=num_tokens,
            params=NO_SAMPLING,
            block_table=self._scheduler.lend_blocks(num_tokens),
            embed=None if self.runner.info.generates else Embed(),
        )
        try:
            yield StepPlan((ScheduledSequence(sequence, 0, num_tokens, completes=True),))
        finally:
            self._scheduler.take_back(sequence.block_table)
            self.runner.forget(sequence.uid)

    def _execute(self, plan: StepPlan) -> StepResult:
        result = self.runner.execute(plan)
        failure = _incomplete(plan, result)
        if failure is not None:
            raise failure
        return result


def _incomplete(plan: StepPlan, result: StepResult) -> Exception | None:
    """Return an error for a result that does not cover every sequence."""
    answered, scheduled = len(result.sampled), len(plan.scheduled)
    if answered == scheduled:
        return None
    return RuntimeError(f"the runner answered {answered} of {scheduled} sequences")


def _attempt(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return what the call returns or raises. Raises EngineDeadError when the device is lost."""
    try:
        return call(), None
    except DeviceLostError as error:
        raise EngineDeadError(str(error)) from error
    except Exception as error:
        return None, error
