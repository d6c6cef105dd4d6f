"""A batch's rows are the plan's tokens, each with its position and its own sequence's blocks."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.layout import Rows
from engine.attention.tables import RowsBuilder
from engine.run.batch import BatchBuilder, StepBatch
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.run.plans import sequence

BLOCK = 4


def check(batch: StepBatch, plan: StepPlan) -> None:
    """Row by row, from the plan alone."""
    assert sorted(batch.order) == list(range(len(plan.scheduled)))
    assert batch.items == tuple(plan.scheduled[place] for place in batch.order)
    layout = batch.layout
    assert isinstance(layout, Rows)
    token_ids, positions = batch.token_ids.tolist(), batch.positions.tolist()
    of_rows, tables = layout.sequences.tolist(), layout.blocks.tolist()
    row, fresh, longest = 0, [], 0
    for number, item in enumerate(batch.items):
        longest = max(longest, item.end)
        for position in range(item.start, item.end):
            assert token_ids[row] == item.sequence.token_ids[position]
            assert positions[row] == position
            assert of_rows[row] == number
            if position % BLOCK == 0:
                fresh.append(item.sequence.block_table[position // BLOCK])
            row += 1
        assert batch.last_rows[number] == row - 1
        needed = -(-item.end // BLOCK)
        assert tables[number][:needed] == item.sequence.block_table[:needed]
    assert len(token_ids) == row
    assert layout.longest == longest
    assert batch.fresh_blocks.tolist() == fresh
    decoding = [item.end for item in batch.items if item.num_tokens == 1]
    assert decoding == sorted(decoding, reverse=True)
    assert all(item.num_tokens == 1 for item in batch.items[: len(decoding)])


class Company:
    """Sequences that come, grow, leave, and lose their blocks."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._blocks = iter(range(10**6))
        self._running: list[Sequence] = []
        self._uid = 0

    def plan(self) -> StepPlan:
        chance = self._random.random()
        if chance < 0.2 or not self._running:
            self._uid += 1
            prompt = [self._uid * 1000 + i for i in range(self._random.randint(1, 40))]
            self._running.append(sequence(self._uid, prompt, []))
        elif chance < 0.3:
            self._running.pop(self._random.randrange(len(self._running)))
        elif chance < 0.4:
            victim = self._random.choice(self._running)
            victim.num_preemptions += 1
            victim.num_computed_tokens, victim.block_table = 0, []
        elif chance < 0.5:
            self._random.shuffle(self._running)
        items = [self._item(each) for each in self._running if self._random.random() < 0.95]
        return StepPlan(tuple(items))

    def _item(self, each: Sequence) -> ScheduledSequence:
        start = each.num_computed_tokens
        left = each.num_tokens - start
        num_tokens = left if self._random.random() < 0.7 else self._random.randint(1, left)
        while len(each.block_table) * BLOCK < start + num_tokens:
            each.block_table.append(next(self._blocks))
        return ScheduledSequence(each, start, num_tokens, completes=num_tokens == left)

    def take(self, plan: StepPlan) -> None:
        for item in plan.scheduled:
            item.sequence.num_computed_tokens = item.end
            if item.completes:
                item.sequence.token_ids.append(self._random.randrange(1000))


@given(st.integers(0, 10**9))
def test_every_row_is_correct_as_sequences_arrive_grow_leave_or_lose_blocks(seed: int) -> None:
    company, builder = Company(seed), BatchBuilder(RowsBuilder(), block_size=BLOCK)
    for _ in range(25):
        plan = company.plan()
        if not plan.scheduled:
            continue
        batch = builder.build(plan)
        check(batch, plan)
        again = builder.build(plan)
        assert again.order == batch.order
        np.testing.assert_array_equal(again.token_ids, batch.token_ids)
        company.take(plan)


def test_decode_rows_keep_their_order_while_they_stay_the_same() -> None:
    builder = BatchBuilder(RowsBuilder(), block_size=BLOCK)
    rows = [
        sequence(uid, list(range(length)), list(range(uid * 20, uid * 20 + 9)))
        for uid, length in ((1, 7), (2, 20), (3, 7))
    ]

    def order(*uids: int) -> tuple[int, ...]:
        items = []
        for uid in uids:
            row = rows[uid - 1]
            items.append(ScheduledSequence(row, row.num_tokens - 1, 1, completes=True))
        plan = StepPlan(tuple(items))
        batch = builder.build(plan)
        check(batch, plan)
        return tuple(uids[place] for place in batch.order)

    assert order(1, 2, 3) == (2, 1, 3)
    for row in rows:
        row.token_ids.append(5)
    assert order(1, 2, 3) == (2, 1, 3)
    rows[2].token_ids += [6] * 3  # it has overtaken one
    assert order(1, 2, 3) == (2, 3, 1)
    assert order(3, 1) == (3, 1)
