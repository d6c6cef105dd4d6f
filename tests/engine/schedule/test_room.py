"""Which waiting sequences have room in the KV cache."""

from __future__ import annotations

import pytest

from engine.messages import SamplingParams
from engine.schedule.blocks import BlockPool
from engine.schedule.room import Room
from engine.step.sequence import Sequence

NUM_BLOCKS = 20


def sequence(tokens: int, held: int = 0) -> Sequence:
    params = SamplingParams(max_tokens=1)
    return Sequence(0, "r", [1] * tokens, tokens, params, block_table=list(range(held)))


def room() -> Room:
    return Room(BlockPool(NUM_BLOCKS, lambda *_: None), 4)


@pytest.mark.parametrize(
    ("tokens", "num_running", "kept", "fits"),
    [(80, 0, 0, True), (81, 0, 0, False), (76, 1, 0, True), (76, 2, 0, False), (76, 0, 5, False)],
)
def test_there_are_blocks_for_all_tokens_beside_one_for_each_that_runs_and_those_kept(
    tokens: int, num_running: int, kept: int, fits: bool
) -> None:
    assert room().fits(sequence(tokens), [], num_running, kept) is fits


def test_what_running_prompts_lack_is_promised_to_them_except_to_preempted_ones() -> None:
    one = room()
    preempted = sequence(40)
    preempted.uid = 7
    one.promise([sequence(40, held=4), preempted], {7})
    assert one.promised == 6
    assert one.fits(sequence(56), [], 0)
    assert not one.fits(sequence(57), [], 0)
    assert one.for_more(8, 2) == 4


def test_blocks_that_others_hold_are_shared_and_those_that_nobody_holds_are_taken() -> None:
    pool = BlockPool(NUM_BLOCKS, lambda *_: None)
    held = pool.allocate_all(NUM_BLOCKS // 2)
    one = Room(pool, 4)
    assert one.fits(sequence(60), held[:5], 0)
    assert not one.fits(sequence(61), held[:5], 0)
    for block in held:
        pool.release(block)
    assert one.fits(sequence(80), held[:5], 0)
    assert not one.fits(sequence(81), held[:5], 0)
