"""From a request to its submissions, and to parsers that know the model's tags."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from engine.messages import FinishReason, SamplingParams
from engine.queueing import Following
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.engine.link import EngineLink, EngineState, LinkPhase
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.submission import Submission
from service.errors import (
    EngineUnavailableError,
    ExpiredError,
    InvalidRequestError,
    OverloadedError,
)
from service.generation.beam import check_uncached
from service.generation.generator import Generator
from service.generation.request import choice_seed
from service.output.log import fold
from service.tenants.caller import ANYBODY, Caller
from tests.service.at_once import at_once
from tests.service.generation.desk import WatchedDesk, asked, begun
from tests.service.generation.test_beam import READY
from tests.service.wire.chat.test_answer import finish

SHORT = SamplingParams(max_tokens=50)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def test_each_prompt_is_submitted_once_with_a_seed_for_each_choice(
    checkpoint: Checkpoint,
) -> None:
    desk = WatchedDesk()
    generation = begun(desk, checkpoint, prompts=[[1], [2, 3]], n=2, seed=7)
    assert [one.prompt_token_ids for one in desk.submissions] == [[1], [2, 3]]
    for submission in desk.submissions:
        assert submission.seeds == [choice_seed(7, 0), choice_seed(7, 1)]
    assert [choice.index for choice in generation.choices] == [0, 1, 2, 3]
    assert [choice.sequence for choice in generation.choices] == desk.sequences


def test_a_request_without_a_seed_gets_one_of_its_own(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    begun(desk, checkpoint)
    begun(desk, checkpoint)
    first, second = (one.seeds for one in desk.submissions)
    assert first != second


def test_many_choices_let_others_have_their_turn(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    start = Generator(desk, checkpoint).start(asked(prompts=[[1]] * 100), ANYBODY)
    with pytest.raises(AssertionError, match="waits"):
        at_once(start)
    assert 0 < len(desk.submissions) < 100
    start.close()
    assert desk.aborted == [one.handle for one in desk.sequences]  # it was given up


def test_without_an_engine_there_is_no_generation(checkpoint: Checkpoint) -> None:
    link = EngineLink(Path("unused"), on_step=lambda _: None, on_state=lambda _: None)
    for penalty in (None, 1.0):
        request = asked(length_penalty=penalty)
        with pytest.raises(EngineUnavailableError):
            at_once(Generator(link, checkpoint).start(request, ANYBODY))


class SlowDesk(WatchedDesk):
    """Its engine is ready and does not answer at once."""

    def __init__(self) -> None:
        super().__init__()
        self.state = EngineState(LinkPhase.READY, "ready", READY)

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        sequences = super().submit(submission, waker)
        for one in sequences:
            one.state, one.has_place = SequenceState.QUEUED, False
        return sequences


@pytest.mark.parametrize(("penalty", "choices"), [(None, 3), (1.0, 1)], ids=["sampled", "beams"])
def test_what_has_no_places_for_all_its_choices_is_not_submitted(
    checkpoint: Checkpoint, penalty: float | None, choices: int
) -> None:
    def check(caller: Caller, count: int) -> None:
        raise OverloadedError(f"{count} are too many")

    desk = SlowDesk()
    start = Generator(desk, checkpoint, check).start(asked(n=3, length_penalty=penalty), ANYBODY)
    with pytest.raises(OverloadedError, match=f"{choices} are too many"):
        at_once(start)
    assert desk.submissions == []


@pytest.mark.parametrize("penalty", [None, 1.0], ids=["sampled", "beams"])
async def test_a_request_starts_when_the_engine_has_a_place_for_it(
    checkpoint: Checkpoint, penalty: float | None
) -> None:
    desk = SlowDesk()
    request = asked(n=2, length_penalty=penalty)
    start = asyncio.ensure_future(Generator(desk, checkpoint).start(request, ANYBODY, 5.0))
    await asyncio.sleep(0)
    assert not start.done()
    assert [one.deadline for one in desk.submissions] == [5.0]
    for one in desk.sequences:
        one.state = SequenceState.RUNNING
        one.waker.wake()
    generation = await start
    assert desk.aborted == []
    generation.close()


@pytest.mark.parametrize("penalty", [None, 1.0], ids=["sampled", "beams"])
async def test_a_request_without_a_place_fails_before_it_starts(
    checkpoint: Checkpoint, penalty: float | None
) -> None:
    desk = SlowDesk()
    request = asked(length_penalty=penalty)
    start = asyncio.ensure_future(Generator(desk, checkpoint).start(request, ANYBODY, 5.0))
    await asyncio.sleep(0)
    (sequence,) = desk.sequences
    sequence.state, sequence.failure = SequenceState.ENDED, ExpiredError("too late")
    sequence.waker.wake()
    with pytest.raises(ExpiredError):
        await start
    assert sequence.handle in desk.aborted


async def test_the_first_prompt_is_judged_for_all_before_any_other_is_sent(
    checkpoint: Checkpoint,
) -> None:
    desk = SlowDesk()
    request = asked(prompts=[[1], [2, 3], [4, 5, 6]], n=2)
    start = asyncio.ensure_future(Generator(desk, checkpoint).start(request, ANYBODY))
    await asyncio.sleep(0)
    [first] = desk.submissions
    assert first.following == Following(4, 10)
    assert not first.keeps_place
    for one in desk.sequences:
        one.has_place = True
    desk.sequences[0].waker.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = desk.submissions[1:]
    assert [(one.keeps_place, one.following) for one in others] == [(True, None)] * 2
    for one in desk.sequences:
        one.has_place = True
    desk.sequences[0].waker.wake()
    generation = await start
    assert len(generation.choices) == 6
    generation.close()


async def test_where_the_first_prompt_is_refused_no_other_is_sent(checkpoint: Checkpoint) -> None:
    desk = SlowDesk()
    request = asked(prompts=[[1], [2]])
    start = asyncio.ensure_future(Generator(desk, checkpoint).start(request, ANYBODY))
    await asyncio.sleep(0)
    [sequence] = desk.sequences
    sequence.state, sequence.failure = SequenceState.ENDED, OverloadedError("full")
    sequence.waker.wake()
    with pytest.raises(OverloadedError):
        await start
    assert len(desk.submissions) == 1


def test_long_prompts_let_others_have_their_turn(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    start = Generator(desk, checkpoint).start(asked(prompts=[[1] * 5000] * 4), ANYBODY)
    with pytest.raises(AssertionError, match="waits"):
        at_once(start)
    assert len(desk.submissions) == 1
    start.close()


def test_a_beam_search_without_a_prefix_cache_is_bounded_in_what_it_computes(
    checkpoint: Checkpoint,
) -> None:
    desk = SlowDesk()
    uncached = msgspec.structs.replace(READY, prefix_caching=False)
    desk.state = EngineState(LinkPhase.READY, "ready", uncached)
    long = asked(length_penalty=1.0, n=4, prompts=[[1] * 3000])
    with pytest.raises(InvalidRequestError, match="caches no prefixes"):
        at_once(Generator(desk, checkpoint).start(long, ANYBODY))
    assert desk.submissions == []
    check_uncached(asked(length_penalty=1.0, n=4, prompts=[[1] * 200], params=SHORT))


class FullDesk(WatchedDesk):
    """Its engine takes one prompt and no more."""

    def submit(self, submission: Submission, waker: Waker) -> list[EngineSequence]:
        if self.submissions:
            raise ValueError("the prompt is too long to send")
        return super().submit(submission, waker)


def test_where_one_prompt_is_refused_the_others_are_taken_back(checkpoint: Checkpoint) -> None:
    desk = FullDesk()
    with pytest.raises(InvalidRequestError, match="too long to send"):
        begun(desk, checkpoint, prompts=[[1], [2]], n=2)
    assert desk.aborted == [one.handle for one in desk.sequences]
    assert len(desk.aborted) == 2


@pytest.mark.parametrize("parse", [False, True])
def test_tags_that_are_tokens_reach_the_parser_and_are_text_without_one(
    checkpoint: Checkpoint, parse: bool
) -> None:
    text = "<think>Hm.</think>Yes<|im_end|>"
    desk = WatchedDesk()
    generation = begun(desk, checkpoint, parse=parse)
    [sequence] = desk.sequences
    sequence.generated += checkpoint.tokenizer.encode(text, add_special_tokens=False)
    finish(sequence, 0, FinishReason.LENGTH)
    generation.collect()
    folded = fold(generation.choices[0].events)
    told = ("Hm.", "Yes") if parse else ("", "<think>Hm.</think>Yes")
    assert (folded.reasoning, folded.content) == told
