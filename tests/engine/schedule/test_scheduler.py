"""Which tokens a step computes, for whom, and who has to wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from engine.messages import SamplingParams
from engine.queueing import ServiceClass, WaitingReason
from engine.schedule.scheduler import Scheduler
from engine.schedule.tenant_queue import MOST_OUT_OF_TURN
from engine.step.sequence import MOST_OVERTAKEN, Sequence
from engine.step.step import StepPlan

_uids = itertools.count()


def scheduler(
    *,
    num_kv_blocks: int = 100,
    block_size: int = 4,
    max_model_len: int = 400,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    enable_prefix_caching: bool = False,
    prompt_logprob_work: float = 1.0,
) -> Scheduler:
    return Scheduler(
        num_kv_blocks=num_kv_blocks,
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_prefix_caching=enable_prefix_caching,
        prompt_logprob_work=prompt_logprob_work,
    )


def sequence(
    num_tokens: int,
    *,
    priority: int = 0,
    first: int = 0,
    service_class: ServiceClass = ServiceClass.STANDARD,
    prompt_logprobs: int | None = None,
    tenant: str = "",
) -> Sequence:
    """A prompt of tokens first, first + 1, ..."""
    return Sequence(
        uid=next(_uids),
        request_id="r",
        token_ids=list(range(first, first + num_tokens)),
        num_prompt_tokens=num_tokens,
        params=SamplingParams(max_tokens=1000, prompt_logprobs=prompt_logprobs),
        priority=priority,
        service_class=service_class,
        tenant=tenant,
    )


def added(to: Scheduler, *sequences: Sequence) -> None:
    for one in sequences:
        to.add(one)


def step(of: Scheduler, now: float = 0.0) -> dict[int, int]:
    """Plan a step and pretend it ran; tokens planned for each sequence, by uid."""
    plan = of.schedule(now)
    ran(of, plan)
    return {item.sequence.uid: item.num_tokens for item in plan.scheduled}


def steps_until(of: Scheduler, condition: Callable[[], bool]) -> dict[int, int]:
    """Run steps until the condition holds; what the last of them planned."""
    for _ in range(200):
        planned = step(of)
        if condition():
            return planned
    raise AssertionError("this never comes about")


def ran(of: Scheduler, plan: StepPlan) -> None:
    for item in plan.scheduled:
        of.update(item, 7 if item.completes else None, 0.0)


def test_without_work_the_plan_is_empty_and_no_step_is_counted() -> None:
    empty = scheduler()
    assert not empty.has_work
    assert empty.schedule(0.0).scheduled == ()
    assert empty.counters.steps == 0


def test_a_prompt_is_computed_whole_and_then_a_token_a_step() -> None:
    one, short = scheduler(), sequence(10)
    added(one, short)
    assert step(one) == {short.uid: 10}
    assert step(one) == {short.uid: 1}
    assert short.token_ids[10:] == [7, 7]
    assert short.num_computed_tokens == 11


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks() -> None:
    one, long = scheduler(max_num_batched_tokens=16), sequence(40)
    added(one, long)
    assert [step(one)[long.uid] for _ in range(4)] == [16, 16, 8, 1]
    assert long.num_output_tokens == 2


def test_prompt_tokens_with_logprobs_take_what_they_cost_of_the_budget() -> None:
    one = scheduler(max_num_batched_tokens=16, prompt_logprob_work=4.0)
    long, plain = sequence(11, prompt_logprobs=0), sequence(20)
    added(one, long, plain)
    plans = []
    for _ in range(5):
        plans.append(one.schedule(0.0))
        ran(one, plans[-1])
    assert [[item.num_tokens for item in plan.scheduled] for plan in plans] == [
        [4],
        [4],
        [3, 4],
        [1, 15],
        [1, 1],
    ]
    assert [plan.extra_work for plan in plans] == [12, 12, 9, 0, 0]


def test_a_prompt_with_logprobs_progresses_though_a_token_costs_more_than_the_budget() -> None:
    one = scheduler(max_num_batched_tokens=8, prompt_logprob_work=16.0)
    added(one, long := sequence(3, prompt_logprobs=0))
    assert [step(one)[long.uid] for _ in range(3)] == [1, 1, 1]


def test_the_budget_of_a_preempted_prompt_with_logprobs_is_free_again() -> None:
    one = scheduler(max_num_seqs=1, max_num_batched_tokens=16, prompt_logprob_work=4.0)
    batch = sequence(100, prompt_logprobs=0, service_class=ServiceClass.BATCH)
    added(one, batch)
    assert step(one) == {batch.uid: 4}
    added(one, urgent := sequence(100, service_class=ServiceClass.INTERACTIVE))
    plan = one.schedule(0.0)
    assert plan.preempted == (batch,)
    assert [(item.sequence, item.num_tokens) for item in plan.scheduled] == [(urgent, 16)]
    assert plan.extra_work == 0


def test_decoding_continues_during_a_long_prompt() -> None:
    one = scheduler(max_num_batched_tokens=16)
    short, long = sequence(4), sequence(100)
    added(one, short)
    step(one)
    added(one, long)
    for _ in range(6):
        assert step(one) == {short.uid: 1, long.uid: 15}


def test_decodes_go_first_even_when_a_prompt_ranks_above_them() -> None:
    one = scheduler(max_num_batched_tokens=8)
    short, urgent = sequence(4), sequence(100, priority=-1)
    added(one, short)
    step(one)
    added(one, urgent)
    for _ in range(3):
        assert step(one) == {short.uid: 1, urgent.uid: 7}


def test_every_running_sequence_finds_a_token_in_the_budget() -> None:
    one = scheduler(max_num_batched_tokens=4, max_num_seqs=100)
    added(one, *[sequence(2) for _ in range(10)])
    for _ in range(8):
        step(one)
    assert one.num_running == 4
    assert len(step(one)) == 4


def test_first_come_is_first_served_and_lower_priority_numbers_before_all() -> None:
    one = scheduler(max_num_seqs=1)
    second, third, first = sequence(4), sequence(4), sequence(4, priority=-5)
    added(one, second, third, first)
    for expected in (first, second, third):
        assert list(step(one)) == [expected.uid]
        one.finish(expected)
    assert not one.has_work


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_num_seqs": 1}, WaitingReason.SLOTS),
        ({"max_num_batched_tokens": 10}, WaitingReason.BUDGET),
        ({"num_kv_blocks": 5}, WaitingReason.KV_BLOCKS),
    ],
)
def test_the_reason_why_the_head_of_the_queue_waits_is_reported(
    settings: dict[str, int], reason: WaitingReason
) -> None:
    one = scheduler(**settings)  # type: ignore[arg-type]  # only ints are given
    added(one, sequence(10), sequence(10))
    step(one)
    assert (one.num_running, one.num_waiting) == (1, 1)
    assert one.waiting_reason is reason


def test_no_sequence_overtakes_the_head_of_the_queue() -> None:
    one = scheduler(num_kv_blocks=10)
    running, large, small = sequence(20), sequence(30), sequence(1)
    added(one, running, large, small)
    assert list(step(one)) == [running.uid]
    assert one.waiting_reason is WaitingReason.KV_BLOCKS


def test_blocks_are_taken_as_tokens_come_not_for_the_output_in_advance() -> None:
    one, short = scheduler(), sequence(4)
    added(one, short)
    step(one)
    assert one.pool.counts().active == 1
    for _ in range(4):
        step(one)
    assert one.pool.counts().active == 2


def test_a_long_prompt_takes_blocks_chunk_by_chunk_but_keeps_others_off_the_rest() -> None:
    one = scheduler(num_kv_blocks=12, max_num_batched_tokens=16)
    long, late = sequence(40), sequence(16)
    added(one, long, late)
    assert step(one) == {long.uid: 16}
    assert one.pool.counts().active == 4
    while long.num_output_tokens == 0:
        assert late.uid not in step(one)
    assert one.counters.preemptions == 0


def test_the_newest_sequence_is_preempted_when_an_older_one_needs_a_block() -> None:
    one = scheduler(num_kv_blocks=5)
    old, new = sequence(8), sequence(7)
    added(one, old, new)
    step(one)  # old: 2 blocks, and needs a third next; new: 2, and is content with them
    assert one.num_running == 2
    steps_until(one, lambda: new.num_preemptions > 0)
    assert old.num_preemptions == 0
    assert new.block_table == []
    assert (one.num_running, one.num_waiting, one.counters.preemptions) == (1, 1, 1)


def test_priority_beats_age_when_choosing_whom_to_preempt() -> None:
    one = scheduler(num_kv_blocks=5)
    old, urgent = sequence(8, priority=1), sequence(8, priority=0)
    added(one, old, urgent)
    steps_until(one, lambda: one.counters.preemptions > 0)
    assert (old.num_preemptions, urgent.num_preemptions) == (1, 0)


def test_a_stream_continues_however_many_of_higher_priority_arrive() -> None:
    """By steps: in a cache that holds little more than one of them, and slots for two."""
    one = scheduler(num_kv_blocks=10, max_num_seqs=2, max_num_batched_tokens=40)
    stream = sequence(8, priority=0)
    added(one, stream)
    step(one)
    urgent: list[Sequence] = []
    silent = longest = 0
    for _ in range(2000):
        while one.num_waiting < 8:
            urgent.append(sequence(8, priority=-1000))
            one.add(urgent[-1])
        before = stream.num_output_tokens
        step(one)
        silent = 0 if stream.num_output_tokens > before else silent + 1
        longest = max(longest, silent)
        for each in [each for each in urgent if each.num_output_tokens >= 12]:
            urgent.remove(each)
            one.finish(each)
        if stream.num_output_tokens >= 28:
            break
    assert stream.num_output_tokens == 28
    assert stream.num_overtaken <= MOST_OVERTAKEN
    # A place after those that may go first, two at a time, each for the steps that it runs.
    assert longest <= (MOST_OUT_OF_TURN + 1) * 2 * 12


def test_a_sequence_overtaken_too_often_is_not_preempted_for_any_newcomer() -> None:
    one = scheduler(num_kv_blocks=50)
    low = sequence(8, priority=1)
    added(one, low)
    step(one)
    for _ in range(6):
        # It fills nearly all that is free, and soon needs blocks of the other.
        urgent = sequence(4 * (one.pool.num_available - 3), priority=-1000)
        one.add(urgent)
        for _ in range(16):
            step(one)
        assert urgent.num_output_tokens
        one.finish(urgent)
        step(one)
    assert low.num_overtaken == low.num_preemptions == MOST_OVERTAKEN
    assert low.block_table


def test_the_room_that_a_preemption_makes_can_be_used_at_once() -> None:
    one = scheduler(num_kv_blocks=12)
    old, low = sequence(8), sequence(35, priority=5)
    added(one, old, low)
    step(one)
    urgent = sequence(4, priority=1)
    steps_until(one, lambda: old.num_tokens == 12)
    one.add(urgent)
    planned = steps_until(one, lambda: one.counters.preemptions > 0)
    assert set(planned) == {old.uid, urgent.uid}


def test_a_more_urgent_class_takes_the_slot_of_one_that_has_no_token_yet() -> None:
    one = scheduler(max_num_seqs=1, max_num_batched_tokens=16)
    batch = sequence(100, service_class=ServiceClass.BATCH)
    added(one, batch)
    step(one)
    urgent = sequence(8, service_class=ServiceClass.INTERACTIVE)
    added(one, urgent)
    plan = one.schedule(0.0)
    assert plan.preempted == (batch,)
    assert one.running == [urgent]
    assert batch.num_overtaken == 1
    ran(one, plan)


def test_a_more_urgent_class_waits_for_one_that_has_begun_to_generate() -> None:
    one = scheduler(max_num_seqs=1)
    batch = sequence(10, service_class=ServiceClass.BATCH)
    added(one, batch)
    plan = one.schedule(0.0)
    for item in plan.scheduled:
        one.plan_on(item)  # its first token is being sampled
    added(one, sequence(8, service_class=ServiceClass.INTERACTIVE))
    assert one.schedule(0.0).preempted == ()
    assert one.waiting_reason is WaitingReason.SLOTS
    assert one.running == [batch]


def test_a_class_is_not_overtaken_for_ever_in_its_prefill() -> None:
    one = scheduler(max_num_seqs=1, max_num_batched_tokens=8)
    batch = sequence(40, service_class=ServiceClass.BATCH)
    added(one, batch)
    for _ in range(MOST_OVERTAKEN):
        step(one)
        urgent = sequence(4, service_class=ServiceClass.INTERACTIVE)
        added(one, urgent)
        step(one)
        assert one.running == [urgent]
        one.finish(urgent)
    step(one)
    added(one, sequence(4, service_class=ServiceClass.INTERACTIVE))
    step(one)
    assert one.running == [batch]


def test_what_a_class_was_given_by_its_floor_is_not_taken_back() -> None:
    one = scheduler(max_num_seqs=1, max_num_batched_tokens=8)
    urgent = [sequence(4, service_class=ServiceClass.INTERACTIVE) for _ in range(3)]
    batch = sequence(40, service_class=ServiceClass.BATCH)
    added(one, *urgent, batch)
    step(one)
    one.finish(urgent[0])
    step(one)
    assert one.running == [batch]  # owed a tenth of the first one's work
    step(one)
    assert one.running == [batch]


def test_a_sequence_preempted_for_a_prompt_leaves_the_same_step() -> None:
    one = scheduler(num_kv_blocks=13, max_num_batched_tokens=5)
    low, urgent = sequence(4, priority=1), sequence(40)
    added(one, low)
    step(one)
    added(one, urgent)
    planned = steps_until(one, lambda: one.counters.preemptions > 0)
    assert planned == {urgent.uid: 4}
    assert (low.num_preemptions, low.num_computed_tokens, low.block_table) == (1, 0, [])


def test_a_sequence_that_ranks_last_waits_in_place_rather_than_lose_its_blocks() -> None:
    one = scheduler(num_kv_blocks=6, enable_prefix_caching=False)
    old, new = sequence(12), sequence(8)
    added(one, old, new)
    step(one)
    assert step(one) == {old.uid: 1}  # old has taken the last block, and new has two full ones
    assert new.num_preemptions == 0
    one.finish(old)
    assert step(one) == {new.uid: 1}
    assert one.counters.tokens_recomputed == 0


def test_a_preempted_sequence_computes_prompt_and_output_again_and_is_counted_once() -> None:
    one, victim = scheduler(), sequence(10)
    added(one, victim)
    for _ in range(3):
        step(one)
    one.preempt(victim)
    assert step(one) == {victim.uid: 13}
    counters = one.counters
    assert counters.prompt_tokens_computed == 10
    assert counters.tokens_recomputed == 12  # the 13th had never been computed
    assert counters.tokens_generated == 4
    assert one.schedule(0.0).admitted == ()


def test_what_the_prefix_cache_gives_back_after_a_preemption_is_not_recomputed() -> None:
    one, victim = scheduler(enable_prefix_caching=True), sequence(10)
    added(one, victim)
    step(one)
    one.preempt(victim)
    assert step(one) == {victim.uid: 3}
    assert one.counters.tokens_recomputed == 2
    assert one.counters.prompt_tokens_cached == 0
    assert victim.num_cached_tokens == 0


def test_cached_prompt_tokens_are_counted_at_first_admission_only() -> None:
    one = scheduler(enable_prefix_caching=True)
    first, second = sequence(10), sequence(10)
    added(one, first)
    step(one)
    added(one, second)
    assert step(one)[second.uid] == 2
    one.preempt(second)
    step(one)
    assert second.num_cached_tokens == 8
    assert one.counters.prompt_tokens_cached == 8
    assert one.counters.prompt_tokens_computed == 10 + 2


def test_being_refused_again_and_again_counts_nothing() -> None:
    one = scheduler(enable_prefix_caching=True, max_num_seqs=1)
    first, second = sequence(10), sequence(10)
    added(one, first)
    step(one)
    added(one, second)
    for _ in range(20):
        step(one)
    assert one.counters.prompt_tokens_cached == 0


def test_sharing_a_prefix_admits_more_than_the_blocks_would_hold_apart() -> None:
    one = scheduler(num_kv_blocks=16, enable_prefix_caching=True)
    first, *others = (sequence(33) for _ in range(4))  # 9 blocks each, 8 of them full and equal
    added(one, first)
    step(one)
    added(one, *others)
    step(one)
    assert one.num_running == 4
    assert one.pool.counts().active == 8 + 4


def test_a_prefix_that_no_sequence_holds_takes_the_room_of_its_blocks() -> None:
    one = scheduler(num_kv_blocks=8, enable_prefix_caching=True)
    first, other, again = sequence(20), sequence(11, first=100), sequence(21)
    added(one, first)
    step(one)
    one.finish(first)
    added(one, other)
    step(one)
    added(one, again)  # finds all five cached blocks, and no sixth
    assert step(one) == {other.uid: 1}
    assert one.waiting_reason is WaitingReason.KV_BLOCKS
    assert one.pool.counts().cached == 5
    assert one.counters.preemptions == 0


def test_the_admission_names_each_sequence_once_with_its_time() -> None:
    one, first = scheduler(), sequence(4)
    added(one, first)
    plan = one.schedule(12.5)
    assert plan.admitted == (first,)
    assert first.first_scheduled_time == 12.5
    ran(one, plan)
    one.preempt(first)
    assert one.schedule(13.5).admitted == ()
    assert first.first_scheduled_time == 12.5


def test_a_finished_sequence_leaves_its_blocks_whether_it_ran_or_waited() -> None:
    one = scheduler(max_num_seqs=1)
    runs, waits = sequence(10), sequence(10)
    added(one, runs, waits)
    step(one)
    one.finish(waits)
    one.finish(runs)
    assert not one.has_work
    assert one.pool.counts().free == 100
    with pytest.raises(ValueError, match="not running"):
        one.finish(runs)


def test_what_a_finished_sequence_generated_counts_against_its_tenant() -> None:
    one = scheduler(max_num_seqs=1)
    long, first, second = sequence(4, tenant="a"), sequence(8, tenant="b"), sequence(8, tenant="b")
    added(one, long)
    step(one)
    added(one, first, second)  # only one tenant waits, so nothing is counted before the end
    for _ in range(20):
        step(one)
    one.finish(long)
    added(one, again := sequence(4, tenant="a"))
    assert step(one) == {first.uid: 8}
    one.finish(first)
    assert step(one) == {second.uid: 8}
    one.finish(second)
    assert step(one) == {again.uid: 4}


def test_a_sequence_that_could_never_run_is_refused() -> None:
    small = scheduler(num_kv_blocks=4, block_size=4, max_model_len=400)
    assert small.max_sequence_len == 16
    with pytest.raises(ValueError, match="17 tokens"):
        small.add(sequence(17))
    with pytest.raises(ValueError, match="0 tokens"):
        small.add(sequence(0))


def test_a_single_sequence_can_fill_the_whole_cache() -> None:
    small, only = scheduler(num_kv_blocks=4, block_size=4), sequence(5)
    added(small, only)
    while only.num_tokens < small.max_sequence_len:
        assert step(small)
    assert small.pool.counts().active == 4
    assert small.counters.preemptions == 0


def test_blocks_promised_to_a_sequence_that_yields_are_there_for_the_one_it_yields_to() -> None:
    one = scheduler(num_kv_blocks=10, block_size=1, max_num_seqs=1, max_num_batched_tokens=1)
    long = sequence(9)
    added(one, long)
    assert step(one) == {long.uid: 1}
    urgent = sequence(7, first=20, service_class=ServiceClass.INTERACTIVE)
    added(one, urgent)
    assert step(one) == {urgent.uid: 1}
