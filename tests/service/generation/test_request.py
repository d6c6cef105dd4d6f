"""A request's choices: their seeds, and their life from submission to the last event."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.messages import FinishReason
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.errors import OverloadedError
from service.generation.choice import StopRules
from service.generation.request import choice_seed
from service.output.log import fold
from tests.service.generation.desk import WatchedDesk, begun
from tests.service.wire.chat.test_answer import finish


def test_choices_have_seeds_of_their_own_and_the_first_has_the_requests() -> None:
    seeds = [choice_seed(42, index) for index in range(64)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 64
    assert all(
        0 <= choice_seed(seed, index) < 2**63
        for seed in (-1, -(2**63), 2**63 - 1)
        for index in (0, 1)
    )


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def test_choices_end_one_by_one_and_those_that_stopped_are_taken_back(
    checkpoint: Checkpoint,
) -> None:
    desk = WatchedDesk()
    generation = begun(desk, checkpoint, n=3, stop=StopRules(strings=("!",)))
    first, second, third = desk.sequences
    first.generated += checkpoint.tokenizer.encode("Stop!", add_special_tokens=False)
    assert generation.collect() == generation.choices
    assert desk.aborted == [first.handle]  # it was still running in the engine
    second.generated += checkpoint.tokenizer.encode("Hi", add_special_tokens=False)
    assert [choice.index for choice in generation.collect()] == [1, 2]
    assert not generation.done
    for sequence in (second, third):
        finish(sequence, 0, FinishReason.LENGTH)
    generation.collect()
    assert generation.done
    assert [fold(choice.events).content for choice in generation.choices] == ["Stop", "Hi", ""]
    assert generation.output_tokens == sum(len(choice.tokens) for choice in generation.choices)


async def test_advance_waits_for_the_engine(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    generation = begun(desk, checkpoint)
    waiting = asyncio.ensure_future(generation.advance())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert generation.first_token_time is None
    [sequence] = desk.sequences
    sequence.generated += checkpoint.tokenizer.encode("Hi", add_special_tokens=False)
    sequence.waker.wake()
    assert await waiting == generation.choices
    assert generation.first_token_time is not None


def test_what_is_made_to_fail_or_closed_frees_its_blocks_at_once(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    generation = begun(desk, checkpoint, n=2)
    generation.fail(OverloadedError("Nobody reads this."))
    handles = [one.handle for one in desk.sequences]
    assert desk.aborted == handles
    with pytest.raises(OverloadedError, match="Nobody reads"):
        generation.collect()
    generation.close()
    count = len(desk.aborted)
    generation.close()
    assert len(desk.aborted) == count


def test_a_prompt_counts_once_however_many_choices_continue_it(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    generation = begun(desk, checkpoint, prompts=[[1, 2], [1, 2, 3]], n=2)
    for sequence in desk.sequences:
        sequence.cached_tokens = 2
    assert generation.prompt_tokens == 5
    assert generation.cached_tokens == 4
    assert len(generation.records()) == 4
