"""The other ranks build the same plan from what rank 0 sends them."""

from __future__ import annotations

import msgspec

from engine.messages import SamplingParams
from engine.ranks.channel import encode_message
from engine.ranks.messages import RankStep, ToRank
from engine.ranks.steps import StepReader, StepWriter
from engine.step.sequence import Sequence
from engine.step.step import PENDING, ScheduledSequence, StepPlan


def sequence(uid: int, length: int, blocks: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=9, temperature=0.0)
    tokens = [uid * 100 + i for i in range(length)]
    return Sequence(uid, f"r{uid}", tokens, length, params, block_table=blocks)


class Link:
    """A writer and a reader, with the bytes between them."""

    def __init__(self) -> None:
        self.writer, self.reader = StepWriter(), StepReader()
        self.sent: list[RankStep] = []

    def carry(self, *items: ScheduledSequence) -> StepPlan:
        frame = encode_message(self.writer.write(StepPlan(items), ahead=False, clears_blocks=False))
        step = msgspec.msgpack.decode(frame[4:], type=ToRank)
        assert isinstance(step, RankStep)
        self.sent.append(step)
        return self.reader.read(step)


def assert_same(carried: StepPlan, *items: ScheduledSequence) -> None:
    for mine, theirs in zip(carried.scheduled, items, strict=True):
        assert (mine.start, mine.num_tokens, mine.completes) == (
            theirs.start,
            theirs.num_tokens,
            theirs.completes,
        )
        for name in ("uid", "token_ids", "num_prompt_tokens", "block_table", "num_preemptions"):
            assert getattr(mine.sequence, name) == getattr(theirs.sequence, name), name


def test_a_growing_sequence_costs_only_what_it_gained() -> None:
    link, grown = Link(), sequence(1, 20, [4, 5])
    whole = ScheduledSequence(grown, 0, 20, True)
    assert_same(link.carry(whole), whole)
    grown.token_ids.append(7)
    grown.block_table.append(9)
    one = ScheduledSequence(grown, 20, 1, True)
    assert_same(link.carry(one), one)
    [planned] = link.sent[-1].planned
    assert (planned.tokens, planned.blocks_kept, planned.blocks) == ([7], 2, [9])
    assert link.sent[-1].new == []
    assert_same(link.carry(one), one)  # the same again, as a retry is
    [planned] = link.sent[-1].planned
    assert (planned.tokens, planned.blocks) == ([], [])


def test_a_pending_token_is_reported_once_it_is_known() -> None:
    link, ahead = Link(), sequence(1, 3, [0])
    first = ScheduledSequence(ahead, 0, 3, True)
    assert_same(link.carry(first), first)
    for known in (11, 12):
        ahead.token_ids.append(PENDING)
        next_one = ScheduledSequence(ahead, len(ahead.token_ids) - 1, 1, True)
        assert_same(link.carry(next_one), next_one)
        ahead.token_ids[-1] = known
    assert link.sent[-1].planned[0].tokens == [11, PENDING]
    # The sequence got no token after all, and computes its last one again.
    del ahead.token_ids[-1]
    again = ScheduledSequence(ahead, 3, 1, True)
    assert_same(link.carry(again), again)


def test_a_preempted_sequence_comes_back_with_its_new_blocks() -> None:
    link, back = Link(), sequence(1, 20, [4, 5])
    link.carry(ScheduledSequence(back, 0, 20, True))
    back.num_preemptions, back.block_table = 1, [8, 5, 6]
    again = ScheduledSequence(back, 0, 20, True)
    assert_same(link.carry(again), again)


def test_blocks_that_were_exchanged_are_sent_anew() -> None:
    link, moved = Link(), sequence(1, 20, [4, 5])
    link.carry(ScheduledSequence(moved, 0, 20, True))
    for table in ([4, 6], [4]):
        moved.block_table = table
        again = ScheduledSequence(moved, 0, 8, False)
        assert_same(link.carry(again), again)


def test_a_sequence_that_ended_is_forgotten_and_its_number_means_nothing_any_more() -> None:
    link = Link()
    first, second = sequence(1, 3, [0]), sequence(2, 4, [1])
    link.carry(ScheduledSequence(first, 0, 3, True), ScheduledSequence(second, 0, 4, True))
    link.writer.forget(1)
    link.writer.forget(7)  # never planned
    later = ScheduledSequence(second, 3, 1, True)
    assert_same(link.carry(later), later)
    assert link.sent[-1].forgotten == [1]
    assert link.reader._sequences.keys() == {2}
