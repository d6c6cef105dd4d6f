"""Laws of the engine that hold whatever is added, run, aborted, preempted or fails, and in
whatever order. The model under it is ``checking_runner``, which lives off the block tables."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.loop.core import EngineCore
from engine.messages import (
    Finished,
    FinishReason,
    Generate,
    SamplingParams,
    StepOutputs,
    Submit,
    TokenLogprobs,
)
from engine.queueing import QueueBounds, RefusalReason, ServiceClass
from engine.schedule.scheduler import Scheduler
from tests.engine.checking_runner import (
    EOS,
    CheckingRunner,
    continue_alone,
    prompt_logprobs_alone,
)
from tests.engine.hybrid_runner import HybridRunner
from tests.examples import examples

pytestmark = pytest.mark.integration

VOCAB_SIZE = 4
MAX_MODEL_LEN = 24
CONNECTIONS = (1, 2)

# Few token ids and common beginnings, so that prefixes are often shared.
PROMPTS = st.one_of(
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=22),
    st.integers(1, 22).map(lambda length: [1, 2, 3] * (length // 3) + [1, 2, 3][: length % 3]),
)


@dataclass(frozen=True)
class Wish:
    """Anything that a client might submit."""

    connection: int
    prompt: list[int]
    params: SamplingParams
    num_given: int  # output tokens it comes with, as after an engine's restart
    priority: int
    salt: str
    poisoned: bool
    tenant: str
    weight: float
    service_class: ServiceClass
    bounds: QueueBounds | None
    seconds: float | None  # until its deadline
    keeps_place: bool


WISHES = st.builds(
    Wish,
    connection=st.sampled_from(CONNECTIONS),
    prompt=PROMPTS,
    params=st.builds(
        SamplingParams,
        max_tokens=st.integers(4, 12),
        min_tokens=st.integers(0, 4),
        ignore_eos=st.booleans(),
        stop_token_ids=st.sampled_from([frozenset[int](), frozenset([1])]),
        prompt_logprobs=st.sampled_from([None, None, None, 0]),
    ),
    num_given=st.sampled_from([0, 0, 0, 1, 3]),
    priority=st.integers(0, 2),
    tenant=st.sampled_from(["", "", "a", "b"]),
    weight=st.sampled_from([1.0, 0.5, 3.0]),
    service_class=st.sampled_from([ServiceClass.STANDARD, *ServiceClass]),
    salt=st.sampled_from(["", "", "tenant"]),
    bounds=st.sampled_from([None, None, QueueBounds(1, 1000), QueueBounds(3, 40)]),
    seconds=st.sampled_from([None, None, None, 0.0, 0.1, 0.5, 30.0]),
    keeps_place=st.integers(0, 4).map(lambda n: n == 4),
    poisoned=st.integers(0, 9).map(lambda n: n == 9),
)


@dataclass
class Told:
    """Everything that was sent for a submission."""

    submit: Submit
    expected: tuple[list[int], FinishReason]  # what running alone yields
    token_ids: list[int] = field(default_factory=list)
    admitted: int = 0
    cached_tokens: int = 0
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)

    @property
    def all_output(self) -> list[int]:
        return generation(self.submit).output_token_ids + self.token_ids


def generation(submit: Submit) -> Generate:
    assert isinstance(submit.task, Generate)
    return submit.task


def expected_output(submit: Submit, max_len: int) -> tuple[list[int], FinishReason]:
    """What the sequence yields when it has the engine to itself."""
    params = generation(submit).params
    room = min(params.max_tokens, max_len - len(submit.prompt_token_ids))
    free_run = continue_alone(submit.prompt_token_ids, room, VOCAB_SIZE)
    given = len(generation(submit).output_token_ids)
    for count in range(given + 1, room + 1):
        token_id = free_run[count - 1]
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else {EOS})
        if token_id in stops and count >= params.min_tokens:
            return free_run[:count], FinishReason.STOP
    return free_run, FinishReason.LENGTH


class EngineLaws(RuleBasedStateMachine):
    core: EngineCore
    runner: CheckingRunner
    runner_type = CheckingRunner
    ahead = False

    @initialize(
        num_kv_blocks=st.integers(2, 16),
        block_size=st.sampled_from([1, 2, 4]),
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.integers(1, 24),
        enable_prefix_caching=st.sampled_from([True, True, False]),
        wishes=st.lists(WISHES, min_size=2, max_size=6),
    )
    def start(
        self,
        num_kv_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_prefix_caching: bool,
        wishes: list[Wish],
    ) -> None:
        self.now = 0.0
        self.runner = self.runner_type(
            num_kv_blocks=num_kv_blocks,
            block_size=block_size,
            max_model_len=MAX_MODEL_LEN,
            vocab_size=VOCAB_SIZE,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            ahead=self.ahead,
        )
        self.core = EngineCore(
            self.runner,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            clock=self._tick,
        )
        logging.disable(logging.CRITICAL)  # failures are meant here, and tracebacks take time
        self.max_len = min(MAX_MODEL_LEN, num_kv_blocks * block_size)
        self.told: dict[tuple[int, int], Told] = {}
        self.connected: set[int] = set()
        self.handles = 0
        self.tokens_heard = 0
        self.expired = 0  # or refused
        self.anyone_left = False
        for connection in CONNECTIONS:
            self.core.connect(connection)
            self.connected.add(connection)
        for wish in wishes:
            self._add(wish)

    # --- what may happen -----------------------------------------------------------------------

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=4))
    def add(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            self._add(wish)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        connection, handle = data.draw(st.sampled_from(self._live()))
        self.core.abort(connection, [handle, 10**9])
        self._hear(self.core.flush())
        assert self.told[connection, handle].finished[0].reason is FinishReason.ABORT

    @rule(connection=st.sampled_from(CONNECTIONS), really=st.integers(0, 5))
    def disconnect(self, connection: int, really: int) -> None:
        if really < 5:
            return  # rarely, or no engine would live long enough to test anything
        self.core.disconnect(connection)
        self.connected.discard(connection)
        for key in [key for key in self.told if key[0] == connection]:
            del self.told[key]
            self.anyone_left = True

    @precondition(lambda self: self.core.scheduler.num_running > 0)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        running = self.core.scheduler.running
        self.core.scheduler.preempt(data.draw(st.sampled_from(running)))

    @rule(stage=st.sampled_from(["launch", "sample", "result"]))
    def next_step_fails(self, stage: str) -> None:
        self.runner.fail_in = stage
        self.runner.fail_steps = 1

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def a_token_is_withheld(self, data: st.DataObject) -> None:
        """As a grammar's mask does that is not there in time."""
        told = self.told[data.draw(st.sampled_from(self._live()))]
        self.runner.withheld.add(told.submit.request_id)

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        scheduler = self.core.scheduler
        pool = scheduler.pool
        held = Counter(block for s in scheduler.running for block in s.block_table)
        assert [pool.ref_count(block) for block in range(pool.num_blocks)] == [
            held[block] for block in range(pool.num_blocks)
        ]
        counts = pool.counts()
        assert counts.active == len(held)
        assert counts.free + counts.cached + counts.active == pool.num_blocks
        free, cached = set(pool._free), set(pool._cached)
        assert len(free) == counts.free
        assert not free & cached
        assert not (free | cached) & set(held)
        named = {block for block, key in enumerate(pool._keys) if key is not None}
        assert cached <= named
        assert not named & free
        assert {pool._by_key[key] for key in pool._keys if key is not None} == named

    @invariant()
    def no_sequence_holds_more_blocks_than_its_tokens_need(self) -> None:
        scheduler = self.core.scheduler
        for sequence in scheduler.running:
            needed = -(-sequence.num_tokens // scheduler.block_size)
            assert 0 < len(sequence.block_table) <= needed
        for sequence in scheduler._waiting._members.values():
            assert not sequence.block_table
            assert sequence.num_computed_tokens == 0

    @invariant()
    def outputs_are_those_of_running_alone(self) -> None:
        for told in self.told.values():
            expected, _ = told.expected
            assert told.all_output == expected[: len(told.all_output)]

    def teardown(self) -> None:
        logging.disable(logging.NOTSET)
        if not hasattr(self, "core"):
            return
        self.runner.fail_steps = 0
        self.runner.withheld.clear()
        # The first in rank gains a token a step once those that hold its blocks are done.
        bound = (len(self._live()) + 1) ** 2 * (MAX_MODEL_LEN + 1)
        while self.core.has_work:
            self._step()
            bound -= 1
            assert bound > 0, "sequences are starving"
        self._check_ends()
        self._check_counters()
        counts = self.core.scheduler.pool.counts()
        assert counts.active == 0
        if not self.core.scheduler.prefix.enabled:
            assert counts.cached == 0

    def _check_ends(self) -> None:
        for told in self.told.values():
            (finished,) = told.finished
            self._check_record(told, finished)
            if finished.refusal is not None:
                self._check_refusal(told, finished)
            elif finished.reason is FinishReason.ERROR:
                too_long = len(told.submit.prompt_token_ids) >= self.max_len
                assert too_long or told.submit.request_id in self.runner.poison
            elif finished.reason is not FinishReason.ABORT:
                assert (told.all_output, finished.reason) == told.expected
                prompt = told.submit.prompt_token_ids
                params = generation(told.submit).params
                asked = params.prompt_logprobs is not None and told.admitted
                # Reported once, however often the prompt was computed; the first token has none.
                assert told.prompt_logprobs == (prompt_logprobs_alone(prompt) if asked else [])

    def _check_refusal(self, told: Told, finished: Finished) -> None:
        """Only what has no place yet is refused, and for a reason that its submission has."""
        assert finished.refusal is not None
        reason, submit = finished.refusal.reason, told.submit
        assert finished.reason is FinishReason.ERROR
        assert not told.token_ids
        if reason is RefusalReason.DEADLINE_PASSED:
            assert submit.deadline is not None
            assert submit.deadline <= self.now
            return
        assert not told.admitted
        assert not submit.keeps_place
        if reason is RefusalReason.DEADLINE_UNREACHABLE:
            assert submit.deadline is not None
        else:
            assert submit.bounds is not None

    def _check_counters(self) -> None:
        counters = self.core.scheduler.counters
        assert counters.tokens_generated == self.tokens_heard
        admitted = [told for told in self.told.values() if told.admitted]
        whole = all(told.token_ids for told in admitted)  # none left during its prompt
        if whole and not self.anyone_left:
            assert counters.prompt_tokens_computed + counters.prompt_tokens_cached == sum(
                len(told.submit.prompt_token_ids) for told in admitted
            )
        if counters.preemptions == 0:
            assert counters.tokens_recomputed == 0

    def _check_record(self, told: Told, finished: Finished) -> None:
        assert finished.output_tokens == len(told.all_output)
        assert finished.prompt_tokens == len(told.submit.prompt_token_ids)
        assert finished.cached_tokens == told.cached_tokens <= finished.prompt_tokens
        assert told.admitted == (finished.first_scheduled_time is not None)
        assert (finished.first_token_time is not None) == bool(told.token_ids)

    def _add(self, wish: Wish) -> None:
        self.handles += 1
        room = max(0, min(wish.params.max_tokens, self.max_len - len(wish.prompt)))
        submit = Submit(
            handle=self.handles,
            request_id=f"r{self.handles}",
            prompt_token_ids=wish.prompt,
            priority=wish.priority,
            tenant=wish.tenant,
            weight=wish.weight,
            service_class=wish.service_class,
            cache_salt=wish.salt,
            arrival_time=0.0,
            bounds=wish.bounds,
            deadline=None if wish.seconds is None else self.now + wish.seconds,
            keeps_place=wish.keeps_place,
            task=Generate(
                wish.params, continue_alone(wish.prompt, min(wish.num_given, room), VOCAB_SIZE)
            ),
        )
        if wish.poisoned:
            self.runner.poison.add(submit.request_id)
        self.told[wish.connection, submit.handle] = Told(
            submit, expected_output(submit, self.max_len)
        )
        self.connected.add(wish.connection)
        self.core.connect(wish.connection)
        gate, scheduler = self.core._entrance._gate, self.core.scheduler
        own, waiting = gate._tenants.get(wish.tenant), len(gate)
        others_wait = own is not None and own.sequences > 0
        free = scheduler.max_num_seqs - scheduler.num_running
        self.core.add(wish.connection, submit)
        # A tenant with nothing waiting always gets a place.
        if len(gate) > waiting and others_wait and wish.bounds and not wish.keeps_place:
            assert len(gate) - free <= wish.bounds.sequences
        self._hear(self.core.flush())

    def _tick(self) -> float:
        """Return the time, which advances with each call."""
        self.now += 0.01
        return self.now

    # --- driving -------------------------------------------------------------------------------

    def _live(self) -> list[tuple[int, int]]:
        return [key for key, told in self.told.items() if not told.finished]

    def _step(self) -> None:
        had_work = self.core.has_work if self.ahead else self.core.scheduler.has_work
        ends = self.core._flight is not None
        before, expired = len(self.runner.plans), self.expired
        self._hear(self.core.step())
        ran = len(self.runner.plans) > before
        lost = self.expired > expired
        assert ran == had_work or (had_work and (ends or lost)), "work waits, and nothing ran"

    def _hear(self, outputs: dict[int, StepOutputs]) -> None:
        assert set(outputs) == self.connected
        for connection, output in outputs.items():
            count = len(output.handles) // 8
            handles = struct.unpack(f"<{count}q", output.handles)
            token_ids = struct.unpack(f"<{count}i", output.token_ids)
            for admitted in output.admitted:
                told = self.told[connection, admitted.handle]
                told.admitted += 1
                told.cached_tokens = admitted.cached_tokens
            for handle, token_id in zip(handles, token_ids, strict=True):
                told = self.told[connection, handle]
                assert not told.finished
                assert told.admitted == 1
                told.token_ids.append(token_id)
                self.tokens_heard += 1
            for logprobs in output.prompt_logprobs:
                told = self.told[connection, logprobs.handle].prompt_logprobs
                assert logprobs.start == len(told)
                told += logprobs.tokens
            for finished in output.finished:
                self.told[connection, finished.handle].finished.append(finished)
                self.expired += finished.refusal is not None


class LawsOneStepAhead(EngineLaws):
    """The same where each step is launched before the last one's tokens are known."""

    ahead = True


class LawsOfHybrids(EngineLaws):
    """The same with a model that keeps a state of each sequence besides its blocks."""

    runner: HybridRunner
    runner_type = HybridRunner

    @rule(blocks=st.integers(1, 6))
    def states_are_kept_so_often(self, blocks: int) -> None:
        if (snapshots := self._scheduler.prefix.snapshots) is not None:
            snapshots.interval = blocks * self._scheduler.block_size

    @invariant()
    def kept_states_are_few_and_have_their_blocks(self) -> None:
        prefix = self._scheduler.prefix
        if prefix.snapshots is None:
            assert not prefix.enabled
            return
        most = prefix.snapshots.num_slots
        assert most == min(self.runner.info.num_snapshots, prefix.pool.num_blocks)
        assert len(self.runner.states._slots) <= most
        slots = prefix.snapshots._slots
        numbers = [*prefix.snapshots._free, *(slot.number for slot in slots.values())]
        assert sorted(numbers) == list(range(most))
        assert all(prefix.pool.find(name) is not None for name in slots if name in prefix.snapshots)

    @property
    def _scheduler(self) -> Scheduler:
        assert isinstance(self.core.scheduler, Scheduler)
        return self.core.scheduler


for laws in (EngineLaws, LawsOneStepAhead, LawsOfHybrids):
    laws.TestCase.settings = settings(
        max_examples=examples(100),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
TestEngineLaws = EngineLaws.TestCase
TestLawsOneStepAhead = LawsOneStepAhead.TestCase
TestLawsOfHybrids = LawsOfHybrids.TestCase
