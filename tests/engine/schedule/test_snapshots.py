"""States are kept at the boundaries that others may start from, in slots that are reused."""

from __future__ import annotations

import pytest

from engine.messages import EngineCounters, PrefixMiss, PrefixMissReason, SamplingParams
from engine.schedule.scheduler import Scheduler
from engine.schedule.snapshots import INTERVAL, Snapshots
from engine.step.sequence import Sequence
from engine.step.step import PENDING, ScheduledSequence, StepPlan

SIZE = 4


def sequence(token_ids: list[int], uid: int = 0, salt: str = "") -> Sequence:
    params = SamplingParams(max_tokens=100)
    return Sequence(uid, f"r{uid}", list(token_ids), len(token_ids), params, cache_salt=salt)


def tokens(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))


class Steps:
    """A scheduler whose steps always succeed."""

    def __init__(self, *, slots: int = 8, interval: int = 16, blocks: int = 64) -> None:
        self.counters = EngineCounters()
        self.scheduler = Scheduler(
            num_kv_blocks=blocks,
            block_size=SIZE,
            max_model_len=200,
            max_num_seqs=4,
            max_num_batched_tokens=64,
            num_snapshots=slots,
            counters=self.counters,
        )
        assert self.scheduler.prefix.snapshots is not None
        self.snapshots = self.scheduler.prefix.snapshots
        self.snapshots.interval = interval

    def run(self, one: Sequence) -> list[ScheduledSequence]:
        """Compute a prompt and finish it; return what was planned for it."""
        self.scheduler.add(one)
        items = []
        while one.num_output_tokens == 0:
            items += self.step().scheduled
        self.scheduler.finish(one)
        return items

    def step(self) -> StepPlan:
        plan = self.scheduler.schedule(0.0)
        for item in plan.scheduled:
            self.scheduler.update(item, 99 if item.completes else None, 0.0)
        return plan


def ends(items: list[ScheduledSequence]) -> list[tuple[int, bool]]:
    return [(item.end, item.saves is not None) for item in items]


def test_parts_of_a_prompt_end_where_states_are_kept() -> None:
    items = Steps().run(sequence(tokens(43)))
    assert ends(items) == [(16, True), (32, True), (36, True), (43, False)]
    assert [item.start for item in items] == [0, 16, 32, 36]
    assert len({item.saves for item in items}) == 4


@pytest.mark.parametrize("length", range(66, 130))
def test_one_is_kept_near_the_end_of_a_prompt(length: int) -> None:
    steps = Steps(interval=64)
    near = steps.snapshots.near
    assert near == 8
    saved = {item.end for item in steps.run(sequence(tokens(length))) if item.saves is not None}
    [near_the_end] = [end for end in saved if near < length - end <= 2 * near]
    assert saved - {near_the_end} <= {64, 128}
    assert 64 in saved


def test_short_prompts_are_not_cut() -> None:
    steps = Steps(interval=128)
    assert steps.snapshots.near == 16
    assert ends(steps.run(sequence(tokens(32)))) == [(32, False)]
    assert ends(steps.run(sequence(tokens(33, first=50), 1))) == [(16, True), (33, False)]


def test_the_same_prompt_continues_there_and_leaves_a_state_where_its_blocks_end() -> None:
    steps = Steps()
    first = steps.run(sequence(tokens(43)))
    again = steps.run(sequence(tokens(43), 1))
    assert (again[0].start, again[0].restores) == (36, first[2].saves)
    assert ends(again) == [(40, True), (43, False)]
    [third] = steps.run(sequence(tokens(43), 2))
    assert (third.start, third.restores, third.saves) == (40, again[0].saves, None)
    assert steps.counters.prompt_tokens_cached == 76


def test_a_prompt_that_branches_off_leaves_a_state_there_for_the_next() -> None:
    steps = Steps()
    shared = tokens(30)
    steps.run(sequence(shared + tokens(20, first=100)))
    second = steps.run(sequence(shared + tokens(10, first=200), 1))
    assert ends(second) == [(28, True), (32, True), (40, False)]
    assert second[0].start == 16
    third = steps.run(sequence(shared + tokens(5, first=300), 2))
    assert (third[0].start, third[0].restores) == (28, second[0].saves)


def test_states_are_kept_while_a_sequence_generates_and_it_resumes_from_the_last() -> None:
    steps = Steps()
    one = sequence(tokens(6))
    steps.scheduler.add(one)
    while one.num_computed_tokens < 35:
        steps.step()
    assert len(steps.snapshots) == 2  # after 16 and 32 tokens
    steps.scheduler.preempt(one)
    [item] = steps.step().scheduled
    assert (item.start, item.end) == (32, 36)
    assert item.restores is not None
    assert steps.counters.tokens_recomputed == 3


def test_salts_share_no_states() -> None:
    steps = Steps()
    steps.run(sequence(tokens(43), salt="one"))
    assert steps.run(sequence(tokens(43), 1, salt="two"))[0].start == 0
    assert steps.run(sequence(tokens(43), 2, salt="one"))[0].start == 36


def test_a_block_that_is_evicted_takes_its_state_with_it() -> None:
    steps = Steps(blocks=12)
    steps.run(sequence(tokens(43)))
    assert len(steps.snapshots) == 3
    steps.run(sequence(tokens(43, first=100), 1))
    # Of the first, at most the blocks that the second did not need are left, without their ends.
    assert steps.run(sequence(tokens(43), 2))[0].start <= 4
    for name in steps.snapshots._slots:
        assert steps.scheduler.pool.find(name) is not None


def test_slots_are_few_and_the_least_recently_used_one_is_reused() -> None:
    steps = Steps(slots=4)
    steps.run(sequence(tokens(43)))
    used = steps.run(sequence(tokens(43, first=100), 1))
    assert all(0 <= item.saves < 4 for item in used if item.saves is not None)
    assert len(steps.snapshots) == 4
    # The states after 16 and 32 tokens were used before the one after 36.
    assert steps.run(sequence(tokens(43), 2))[0].start == 36
    assert steps.run(sequence(tokens(43, first=100), 3))[0].start == 36


def test_why_a_prefix_ends_where_no_state_is() -> None:
    steps = Steps(interval=64)
    steps.run(sequence(tokens(43)))  # which leaves a state after 32
    part = sequence(tokens(23), 1)
    steps.run(part)  # which leaves states after 8 and 20
    assert part.prefix_miss == PrefixMiss(PrefixMissReason.STATE)
    again = sequence(tokens(23), 2)
    steps.run(again)
    assert again.num_cached_tokens == 20
    assert again.prefix_miss == PrefixMiss(PrefixMissReason.SHORT)
    other = sequence([*tokens(26), *tokens(9, first=100)], 3)
    steps.run(other)
    # It has 20 tokens in common that have a state, and 4 more; the next block differs.
    assert other.num_cached_tokens == 20
    assert other.prefix_miss == PrefixMiss(PrefixMissReason.DIVERGED, "r0", within=8)
    assert steps.counters.prefix_missed_state == 23
    assert steps.counters.prefix_missed_diverged == 15


def test_a_state_after_a_pending_token_is_not_kept() -> None:
    steps = Steps(interval=SIZE)
    one = sequence(tokens(3))
    steps.scheduler.add(one)
    [item] = steps.scheduler.schedule(0.0).scheduled
    steps.scheduler.plan_on(item)
    assert one.token_ids[-1] == PENDING
    [ahead] = steps.scheduler.schedule(0.0).scheduled
    assert (ahead.end, ahead.saves) == (4, None)


# --- slots ----------------------------------------------------------------------------------------


def filled(slots: Snapshots, name: bytes) -> int:
    slots.begin_step()
    number = slots.reserve(name)
    assert number is not None
    slots.filled(name, number)
    return number


def test_a_state_is_found_once_the_step_that_computed_it_has_succeeded() -> None:
    slots = Snapshots(2, SIZE)
    slots.begin_step()
    number = slots.reserve(b"a")
    assert number is not None
    assert b"a" not in slots
    assert slots.reserve(b"a") is None  # another sequence computes it too
    slots.filled(b"a", 1 - number)  # of another
    assert b"a" not in slots
    slots.filled(b"a", number)
    assert b"a" in slots
    assert slots.use(b"a") == number
    slots.begin_step()
    assert slots.reserve(b"a") is None


def test_a_slot_is_not_reused_by_the_step_that_uses_it() -> None:
    slots = Snapshots(1, SIZE)
    number = filled(slots, b"a")
    assert slots.reserve(b"b") is None
    slots.begin_step()
    assert slots.use(b"a") == number
    assert slots.reserve(b"b") is None
    slots.begin_step()
    assert slots.reserve(b"b") == number
    slots.filled(b"a", number)  # reported late
    assert b"a" not in slots
    assert b"b" not in slots


def test_a_reserved_slot_whose_step_came_to_nothing_is_reserved_again() -> None:
    slots = Snapshots(1, SIZE)
    slots.begin_step()
    number = slots.reserve(b"a")
    assert slots.reserve(b"a") is None
    slots.begin_step()
    assert slots.reserve(b"a") == number


@pytest.mark.parametrize(("num_slots", "most"), [(100, 16), (8, 4), (1, 1)])
def test_long_prompts_are_cut_only_so_often(num_slots: int, most: int) -> None:
    slots = Snapshots(num_slots, SIZE)
    prompt = sequence(tokens(100 * INTERVAL))
    found = [end for end in range(SIZE, 100 * INTERVAL, SIZE) if slots.is_boundary(prompt, end)]
    assert most // 2 <= len(found) <= most + 1  # one is near the end
    every = Snapshots(100, SIZE)
    other = sequence(tokens(2 * INTERVAL))
    assert all(every.is_boundary(other, end) for end in found[:-1])


def test_a_dropped_state_frees_its_slot() -> None:
    slots = Snapshots(1, SIZE)
    number = filled(slots, b"a")
    slots.drop(b"a")
    slots.drop(b"unknown")
    assert b"a" not in slots
    assert filled(slots, b"b") == number


def test_the_interval_is_in_whole_blocks() -> None:
    assert Snapshots(1, 16).interval == INTERVAL
    assert Snapshots(1, 48).interval == 480
    assert Snapshots(1, 1024).interval == 1024
    with pytest.raises(ValueError, match="0 slots"):
        Snapshots(0, SIZE)
