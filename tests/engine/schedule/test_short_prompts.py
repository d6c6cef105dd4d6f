"""A short prompt does not wait for a long one: simulated servers, step by step."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.queueing import ServiceClass, WaitingReason
from engine.schedule.scheduler import Scheduler
from engine.step.sequence import MOST_OVERTAKEN, Sequence

BUDGET = 64
OUTPUT = 3
LONG = 1000


@dataclass
class Server:
    """Runs steps of BUDGET tokens; each sequence generates OUTPUT tokens."""

    num_kv_blocks: int = 10_000
    max_num_seqs: int = BUDGET
    budget: int = BUDGET
    max_model_len: int = 4000
    uids: itertools.count[int] = field(default_factory=itertools.count)
    planned: dict[int, int] = field(default_factory=dict)  # by uid, in the last step
    steps: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            num_kv_blocks=self.num_kv_blocks,
            block_size=4,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.budget,
            enable_prefix_caching=False,
            prompt_logprob_work=3.0,
        )

    def add(
        self,
        tenant: str,
        tokens: int,
        *,
        uid: int | None = None,
        max_tokens: int = OUTPUT,
        prompt_logprobs: int | None = None,
        **traits: object,
    ) -> Sequence:
        uid = next(self.uids) if uid is None else uid
        params = SamplingParams(max_tokens=max_tokens, prompt_logprobs=prompt_logprobs)
        one = Sequence(uid, f"r{uid}", [1] * tokens, tokens, params, tenant=tenant, **traits)  # type: ignore[arg-type]
        self.scheduler.add(one)
        return one

    def step(self) -> None:
        plan = self.scheduler.schedule(0.0)
        self.steps += 1
        self.planned = {item.sequence.uid: item.num_tokens for item in plan.scheduled}
        for item in plan.scheduled:
            self.scheduler.update(item, 7 if item.completes else None, 0.0)
            if item.sequence.num_output_tokens == item.sequence.params.max_tokens:
                self.scheduler.finish(item.sequence)

    def steps_to_first_token(self, sequence: Sequence) -> int:
        for step in range(1, 1000):
            self.step()
            if sequence.num_output_tokens:
                return step
        raise AssertionError("it never begins")


@pytest.mark.parametrize("tenant", ["a", "b"])
def test_a_short_prompt_is_in_the_next_step_whoever_sent_the_long_one(tenant: str) -> None:
    server = Server()
    server.add("a", LONG)
    server.step()
    short = server.add(tenant, 10)
    assert server.steps_to_first_token(short) == 1
    assert sum(server.planned.values()) == BUDGET


@pytest.mark.parametrize("tenant", ["a", "b"])
def test_a_short_prompt_does_not_wait_for_long_ones_that_wait(tenant: str) -> None:
    server = Server()
    for _ in range(5):
        server.add("a", LONG)
    server.step()
    for _ in range(20):
        assert server.steps_to_first_token(server.add(tenant, 10)) == 1


def test_a_short_prompt_does_not_overtake_a_better_priority_of_its_tenant() -> None:
    server = Server()
    server.add("a", LONG, priority=-1)
    server.step()
    urgent = server.add("a", LONG, priority=-1)
    short = server.add("a", 10)
    for _ in range(LONG // BUDGET - 1):
        server.step()
        assert short.first_scheduled_time is None
    server.step()
    assert urgent.first_scheduled_time is not None


INTERACTIVE = ServiceClass.INTERACTIVE


@pytest.mark.parametrize("size", [10, 100], ids=["one_step", "several_steps"])
@pytest.mark.parametrize("kind", [ServiceClass.STANDARD, INTERACTIVE], ids=lambda kind: kind.name)
def test_a_better_priority_does_not_hold_up_short_prompts(kind: ServiceClass, size: int) -> None:
    """Neither itself, nor that of another tenant and class."""
    server = Server(budget=BUDGET)
    long = server.add("c", LONG)
    server.step()
    urgent = server.add("a", size, priority=-5, service_class=kind)
    other = server.add("b", 5)
    assert server.steps_to_first_token(urgent) <= 2 * size // BUDGET + 1
    assert server.planned[long.uid] >= (BUDGET - 2) // 2
    assert other.num_output_tokens


def test_a_short_prompt_of_better_priority_is_computed_next_to_streams_too() -> None:
    """Then a step has room for a few prompt tokens only, fewer than a short prompt has."""
    server = Server(budget=16)
    for _ in range(8):
        server.add("s", 1, max_tokens=1000)
    long = server.add("c", LONG)
    for _ in range(3):
        server.step()
    urgent, other = server.add("a", 40, priority=-5), server.add("b", 40)
    steps = server.steps_to_first_token(urgent)
    assert steps <= 12
    assert server.planned[long.uid] == 4
    assert server.steps_to_first_token(other) + steps <= 25


def test_an_older_short_prompt_of_another_tenant_need_not_wait_either() -> None:
    server = Server(max_num_seqs=1, uids=itertools.count(10))
    only = server.add("c", 10, max_tokens=1)
    long, short = server.add("a", LONG, uid=9), server.add("b", 10, uid=0, weight=0.001)
    server.steps_to_first_token(only)
    server.scheduler.max_num_seqs = 8
    server.step()
    assert long.first_scheduled_time is not None
    assert server.steps_to_first_token(short) == 1


def test_one_that_went_ahead_ranks_as_before_once_the_long_one_is_computed() -> None:
    server = Server()
    long = server.add("c", 40 + BUDGET)
    server.step()
    urgent = server.add("a", 10, priority=-1)
    server.step()
    assert server.planned == {long.uid: 40, urgent.uid: 10}
    later = server.add("b", LONG)
    server.step()
    assert server.planned == {urgent.uid: 1, long.uid: 1, later.uid: BUDGET - 2}


def test_one_that_went_ahead_may_take_the_blocks_of_the_long_one_which_then_comes_back() -> None:
    server = Server(num_kv_blocks=60)
    long = server.add("c", 180)
    server.step()
    urgent = server.add("a", 20, priority=-1, max_tokens=150)
    server.add("b", 5)
    assert server.steps_to_first_token(urgent) == 1
    assert server.steps_to_first_token(long) < 200
    assert long.num_preemptions <= MOST_OVERTAKEN


def test_urgent_short_prompts_take_half_of_the_steps_of_one_with_logprobs() -> None:
    """It leaves the tokens of each step that are too few for another of its prompt tokens."""
    server = Server()
    long = server.add("c", 600, prompt_logprobs=0)
    server.step()
    while not long.num_output_tokens:
        if server.steps % 5 in (1, 3, 4):  # 60 tokens for each step
            server.add("ab"[server.steps % 2], 100, priority=-5, max_tokens=1)
        server.step()
        assert server.steps <= 2 * 600 * 3 / BUDGET + OUTPUT


def test_after_both_were_preempted_the_order_is_by_rank() -> None:
    server = Server()
    long = server.add("c", 160, max_tokens=400)
    server.step()
    server.step()
    urgent = server.add("a", 2, priority=-5, max_tokens=400, prompt_logprobs=0)
    assert server.steps_to_first_token(urgent) == 1
    assert long.num_output_tokens
    for _ in range(150):
        server.step()
    server.scheduler.preempt(long)
    server.scheduler.preempt(urgent)
    tokens = urgent.num_output_tokens
    for _ in range(10):
        server.step()
    assert urgent.num_output_tokens > tokens


def test_short_prompts_of_one_tenant_leave_those_of_others_their_share() -> None:
    """The first has a long one that waits, too, and thus the turn."""
    server = Server(max_model_len=20_000)
    server.add("a", 4000)
    server.step()
    for tokens in (4000, *[30] * 500):
        server.add("a", tokens)
    assert server.steps_to_first_token(server.add("b", 10)) <= 3


def test_short_prompts_do_not_take_the_last_slot() -> None:
    server = Server(max_num_seqs=4)
    server.add("a", 2000)
    server.step()
    head = server.add("a", 2000)
    for _ in range(20):
        server.add("a", 30, max_tokens=1000)
    assert server.steps_to_first_token(head) <= 2 * 4000 / BUDGET + 20


def test_one_with_prompt_logprobs_does_not_hide_those_after_it() -> None:
    server = Server()
    server.add("a", 4000)
    server.step()
    server.add("a", 900, prompt_logprobs=1)
    assert server.steps_to_first_token(server.add("a", 10)) == 1


def test_a_short_one_with_prompt_logprobs_goes_ahead_of_its_tenant_s_long_ones() -> None:
    server = Server()
    for _ in range(3):
        server.add("a", LONG)
    server.step()
    scored = server.add("a", 10, prompt_logprobs=0)
    assert server.steps_to_first_token(scored) == 1


def test_a_prompt_larger_than_its_part_of_a_step_has_half_of_each() -> None:
    server = Server()
    long = server.add("a", LONG)
    server.step()
    short = server.add("b", 100)
    parts = []
    while not short.num_output_tokens:
        server.step()
        parts.append((server.planned[long.uid], server.planned[short.uid]))
    assert parts == [(32, 32), (32, 32), (32, 32), (60, 4)]


def test_prompts_of_about_the_same_length_are_computed_one_after_the_other() -> None:
    server = Server()
    first, second = server.add("a", 300), server.add("b", 200)
    assert server.steps_to_first_token(first) == 5
    assert second.num_computed_tokens == 5 * BUDGET - 300
    assert server.steps_to_first_token(second) == 3


def test_a_long_prompt_alone_has_every_token_of_each_step() -> None:
    server = Server()
    server.add("a", LONG)
    server.add("a", LONG)
    for _ in range(LONG // BUDGET):
        server.step()
        assert list(server.planned.values()) == [BUDGET]


def test_a_more_urgent_class_that_waits_is_not_overtaken() -> None:
    server = Server()
    server.add("a", LONG)
    server.step()
    urgent = server.add("a", LONG, service_class=ServiceClass.INTERACTIVE)
    short = server.add("b", 10)
    server.step()
    assert server.planned.keys().isdisjoint({urgent.uid, short.uid})
    assert server.scheduler.waiting_reason is WaitingReason.BUDGET


def test_short_prompts_leave_the_blocks_that_the_head_of_the_queue_needs() -> None:
    server = Server(num_kv_blocks=56)
    server.add("a", 100)
    server.step()
    head = server.add("a", 120)
    short = server.add("b", 5)
    server.step()
    assert head.uid in server.planned  # 25 and 30 blocks, and one more
    assert short.uid not in server.planned


@pytest.mark.parametrize("priority", [0, -5])
@pytest.mark.parametrize("older", [True, False], ids=["older", "newer"])
@pytest.mark.parametrize("size", [100, 600])
@pytest.mark.parametrize("tenant", ["a", "b"])
def test_short_prompts_without_end_take_half_of_a_long_one_s_steps(
    tenant: str, size: int, older: bool, priority: int
) -> None:
    """Older ones, too: a backlog that came first, which ranks above it; and urgent ones."""
    server = Server(max_num_seqs=16, uids=itertools.count(10_000))
    long = server.add("a", 3600, weight=4.0, **({} if older else {"uid": 0}))
    server.step()
    for uid in range(1, 401):
        server.add(tenant, size, uid=uid, priority=priority)
    assert server.steps_to_first_token(long) <= 2 * 3600 / BUDGET + OUTPUT


@pytest.mark.parametrize("long", [8000, 1000])
def test_a_tenant_of_short_prompts_is_given_no_more_than_its_share(long: int) -> None:
    server = Server(max_num_seqs=64, num_kv_blocks=100_000, budget=512, max_model_len=9000)
    tenants = {"a": long, "b": long, "c": 10}
    waiting: Counter[str] = Counter()
    seen: list[Sequence] = []
    given_to: Counter[str] = Counter()
    for _ in range(1500):
        for name, tokens in tenants.items():
            while waiting[name] < 40:
                seen.append(server.add(name, tokens, max_tokens=20))
                waiting[name] += 1
        server.step()
        started = [one for one in seen if one.first_scheduled_time is not None]
        seen = [one for one in seen if one.first_scheduled_time is None]
        for one in started:
            waiting[one.tenant] -= 1
            given_to[one.tenant] += one.num_prompt_tokens + 2 * 20
    assert given_to["c"] <= 1.2 * sum(given_to.values()) / 3


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_long_prompt_keeps_its_half_whatever_the_priorities_of_those_that_come(seed: int) -> None:
    """From when it is first until it is computed, if there are slots and blocks for all. Prompts
    that are short compared with it start in the next step, unless a more urgent one that is not
    short waits."""
    server, rng = Server(max_num_seqs=1000), random.Random(seed)
    long = server.add("long", 3000)
    server.step()
    while not long.num_output_tokens:
        left = long.num_tokens - long.num_computed_tokens
        short = [
            server.add(
                rng.choice("abc"),
                rng.choice([3, 20, 100]),
                priority=rng.choice([0, 0, 5, -5]),
                service_class=rng.choice(list(ServiceClass)),
            )
            for _ in range(rng.random() < 0.1)
        ]
        decodes = sum(
            one.num_tokens - one.num_computed_tokens == 1 for one in server.scheduler.running
        )
        spare = not server.scheduler.num_waiting - len(short)
        begun = sum(
            one is not long and one.num_tokens - one.num_computed_tokens > 1
            for one in server.scheduler.running
        )
        server.step()
        assert server.planned[long.uid] >= min(left, (BUDGET - decodes) // 2)
        for one in short:
            if spare and not begun and one.num_tokens <= left / 4:
                assert one.uid in server.planned


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), blocks=st.integers(160, 400), slots=st.integers(1, 12))
def test_every_prompt_begins_whatever_the_priorities_slots_and_blocks(
    seed: int, blocks: int, slots: int
) -> None:
    server, rng = Server(num_kv_blocks=blocks, max_num_seqs=slots), random.Random(seed)
    seen = []
    for _ in range(100):
        if rng.random() < 0.4:
            seen.append(
                server.add(
                    rng.choice("abc"),
                    rng.choice([3, 20, 100, 600]),
                    max_tokens=rng.choice([1, 3, 30]),
                    priority=rng.choice([0, 0, 5, -5]),
                    service_class=rng.choice(list(ServiceClass)),
                )
            )
        server.step()
    for _ in range(2000):
        if not server.scheduler.has_work:
            break
        server.step()
    assert all(one.num_output_tokens == one.params.max_tokens for one in seen)
    assert all(one.num_overtaken <= MOST_OVERTAKEN for one in seen)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_steps_stay_full_and_the_first_prompt_has_half_of_each(seed: int) -> None:
    server, rng = Server(), random.Random(seed)
    load = rng.uniform(0.05, 0.6)
    for _ in range(200):
        if rng.random() < load:
            server.add(rng.choice("abc"), rng.choice([3, 20, 100, 600]))
        running = list(server.scheduler.running)
        left = {one.uid: one.num_tokens - one.num_computed_tokens for one in running}
        prompts = [one for one in running if left[one.uid] > 1]
        decodes = len(running) - len(prompts)
        server.step()
        if sum(server.planned.values()) < BUDGET:
            assert not server.scheduler.num_waiting
            assert all(server.planned[uid] == tokens for uid, tokens in left.items())
        if prompts:
            first = prompts[0].uid
            assert server.planned[first] >= min(left[first], (BUDGET - decodes) // 2)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), tenants=st.integers(1, 4))
def test_who_waits_is_overtaken_by_no_more_than_half_of_the_prompt_tokens(
    seed: int, tenants: int
) -> None:
    """And by the rest of a prompt, beyond what the counters allow; if there are slots and blocks
    for all."""
    server, rng = Server(), random.Random(seed)
    names = "abcd"[:tenants]
    counters = server.scheduler._waiting._classes[ServiceClass.STANDARD].tenants
    waiting: dict[int, tuple[Sequence, dict[str, float], Counter[str]]] = {}
    early: dict[int, float] = defaultdict(float)
    later: dict[int, int] = defaultdict(int)  # its tenant's work that came later
    largest = 0
    for _ in range(300):
        if rng.random() < 0.3:
            size = rng.choice([3, 20, 100, 600])
            largest = max(largest, size)
            one = server.add(rng.choice(names), size)
            known = {name: queue.counter for name, queue in counters.items()}
            waiting[one.uid] = (one, known, Counter())
        before = {uid for uid, (one, _, _) in waiting.items() if not one.block_table}
        server.step()
        starting = [uid for uid in before if waiting[uid][0].first_scheduled_time is not None]
        for uid in before - set(starting):
            one, known, given_to = waiting[uid]
            early[uid] += BUDGET / 2
            for other in starting:
                tokens, tenant = waiting[other][0].num_prompt_tokens, waiting[other][0].tenant
                given_to[tenant] += tokens
                if tenant == one.tenant and other > uid:
                    later[uid] += tokens
            assert later[uid] <= largest + early[uid]
            for name, work in given_to.items():
                if name != one.tenant:
                    since = counters[one.tenant].counter - known.get(name, 0.0)
                    assert work <= max(0.0, since) + 2 * largest + early[uid]
        for uid in starting:
            del waiting[uid]
