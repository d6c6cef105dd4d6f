"""From a request to its submissions, and to parsers that know the model's tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import FinishReason
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.engine.link import EngineLink
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.errors import EngineUnavailableError, InvalidRequestError
from service.generation.generator import Generator
from service.generation.request import choice_seed
from service.output.log import fold
from service.tenants.caller import ANYBODY
from tests.service.at_once import at_once
from tests.service.generation.desk import WatchedDesk, asked, begun
from tests.service.wire.chat.test_answer import finish


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
    sequence.tokens += checkpoint.tokenizer.encode(text, add_special_tokens=False)
    finish(sequence, 0, FinishReason.LENGTH)
    generation.collect()
    folded = fold(generation.choices[0].events)
    told = ("Hm.", "Yes") if parse else ("", "<think>Hm.</think>Yes")
    assert (folded.reasoning, folded.content) == told
