"""A beam search keeps what it may still return, and shares what its beams have in common."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.messages import FinishReason, Generate, Ready, SamplingParams, TokenLogprobs, packed_top
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.engine.link import EngineState, LinkPhase
from service.errors import EngineFailedError, InvalidRequestError, QuireError
from service.generation.beam import Beam, BeamGeneration, continued
from service.generation.choice import StopRules
from service.generation.generator import Generator
from service.generation.request import GenerationRequest
from service.tenants.caller import ANYBODY
from tests.service.at_once import at_once
from tests.service.generation.desk import WatchedDesk, asked
from tests.service.wire.chat.test_answer import Desk, fail, finish

READY = Ready(
    model="m",
    architecture="a",
    dtype="d",
    device="cpu",
    num_parameters=0,
    vocab_size=512,
    max_model_len=4096,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    block_size=16,
    num_kv_blocks=100,
    kv_cache_bytes=0,
    load_seconds=0.0,
)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def search(
    checkpoint: Checkpoint, *, width: int, tokens: int, length_penalty: float = 1.0, **fields: Any
) -> BeamGeneration:
    desk = Desk()
    desk.state = EngineState(LinkPhase.READY, "ready", READY)
    generation = at_once(
        Generator(desk, checkpoint).start(
            GenerationRequest(
                request_id="r",
                prompts=[[1, 2, 3]],
                params=SamplingParams(max_tokens=tokens, **fields),
                arrival_time=0.0,
                n=width,
                stop=StopRules(token_ids=tuple(range(100, 200))),
                length_penalty=length_penalty,
            ),
            ANYBODY,
        )
    )
    assert isinstance(generation, BeamGeneration)
    return generation


def step(generation: BeamGeneration, numbers: random.Random) -> None:
    """The engine answers every beam: half of the likely tokens end it."""
    answers: list[list[tuple[int, float]]] = []
    for _ in generation._at_work:
        ids = [*numbers.sample(range(20, 60), 3), *numbers.sample(range(100, 200), 3)]
        answers.append([(token, -numbers.random() * 4) for token in ids])
    say(generation, answers)


def say(generation: BeamGeneration, answers: list[list[tuple[int, float]]]) -> None:
    """The engine answers each beam with these tokens and their log-probabilities."""
    for sequence, answer in zip(generation._at_work, answers, strict=True):
        top = sorted(answer, key=lambda one: -one[1])
        sequence.logprobs = [TokenLogprobs(top[0][1], 1, packed_top(top))]
        finish(sequence, 1, FinishReason.LENGTH)
    generation.collect()


def nodes(beams: list[Beam]) -> set[int]:
    return {id(node) for beam in beams for node in beam.chain()}


def test_memory_grows_with_the_tokens_not_with_all_that_ever_ended(
    checkpoint: Checkpoint,
) -> None:
    # The penalty makes longer outputs better, so that the search does not end early.
    generation = search(checkpoint, width=3, tokens=300, length_penalty=9.0)
    numbers = random.Random(1)
    while not generation.done:
        step(generation, numbers)
        assert len(generation._ended) <= 3
        kept = [*generation._ended, *(beam for beam in generation._beams if beam is not None)]
        length = max(beam.length for beam in kept)
        assert len(nodes(kept)) <= 6 * length
    assert len(generation.choices) == 3
    for choice in generation.choices:
        assert choice.finished is not None
        assert len(choice.tokens) <= 300
        assert choice.logprobs == []


def test_the_best_that_ended_are_those_of_a_search_that_keeps_all(checkpoint: Checkpoint) -> None:
    ends = frozenset(range(100, 200))
    generation = search(checkpoint, width=2, tokens=6, logprobs=1, length_penalty=9.0)
    numbers = random.Random(7)
    mirror, ended = [None], list[Beam]()
    while not generation.done:
        sequences = list(generation._at_work)
        step(generation, numbers)
        candidates = [
            beam
            for parent, sequence in zip(mirror, sequences, strict=True)
            for beam in continued(parent, sequence.logprobs[0], ends, most=4, shown=1)
        ]
        candidates.sort(key=lambda beam: -beam.score)
        is_last = candidates[0].length == 6
        ended += [beam for beam in candidates[:2] if beam.is_ended or is_last]
        mirror = [beam for beam in candidates if not beam.is_ended][:2]  # type: ignore[assignment]
    best = sorted(ended, key=generation._order)[:2]
    outputs = [[node.token for node in beam.chain()] for beam in best]
    assert [choice.tokens for choice in generation.choices] == outputs
    assert len(ended) > 2
    for choice in generation.choices:
        assert all(len(entry.top) == 1 for entry in choice.logprobs)


@pytest.mark.parametrize(
    ("length_penalty", "is_over"),
    [(-1.0, True), (0.0, True), (0.2, True), (0.5, False), (1.0, False), (2.0, False)],
)
def test_a_search_ends_once_no_beam_can_be_better_than_those_that_ended(
    checkpoint: Checkpoint, length_penalty: float, is_over: bool
) -> None:
    generation = search(checkpoint, width=2, tokens=50, length_penalty=length_penalty)
    say(generation, [[(20, -0.1), (100, -0.5), (21, -3.0)]])
    say(generation, [[(22, -0.6), (101, -0.9)], [(23, -9.0)]])
    assert not generation.done
    # The best beam has -1.2 after three tokens; those that ended -0.5 after one, -1.0 after two.
    say(generation, [[(24, -0.5)], [(25, -9.0)]])
    assert generation.done is is_over
    if is_over:
        outputs = [choice.tokens for choice in generation.choices]
        assert sorted(outputs) == [[20, 101], [100]]


@pytest.mark.parametrize(("asked_for", "computed"), [(None, 4), (1, 4), (5, 5), (20, 20)])
def test_as_many_alternatives_are_shown_as_requested_and_the_search_stays_the_same(
    checkpoint: Checkpoint, asked_for: int | None, computed: int
) -> None:
    generation = search(checkpoint, width=2, tokens=1, logprobs=asked_for)
    assert generation._params.logprobs == computed
    [sequence] = generation._at_work
    likely = [(token, -0.5 * token) for token in range(1, computed + 1)]
    sequence.logprobs = [TokenLogprobs(-0.5, 1, packed_top(likely))]
    finish(sequence, 1, FinishReason.LENGTH)
    found: list[Beam] = continued(
        None, sequence.logprobs[0], frozenset(), most=generation._candidates, shown=0
    )
    assert [beam.token for beam in found] == [1, 2, 3, 4]
    generation.collect()
    alternatives = [] if asked_for is None else [asked_for]
    for choice in generation.choices:
        assert [len(entry.top) for entry in choice.logprobs] == alternatives


@pytest.mark.parametrize(
    ("is_refusal", "error", "status"),
    [(True, InvalidRequestError, 400), (False, EngineFailedError, 500)],
)
def test_a_beam_that_fails_in_the_engine_fails_the_search_with_its_reason(
    checkpoint: Checkpoint, is_refusal: bool, error: type[QuireError], status: int
) -> None:
    generation, numbers = search(checkpoint, width=2, tokens=9), random.Random(3)
    step(generation, numbers)
    _, second = generation._at_work
    fail(second, "the prompt leaves no room", is_refusal=is_refusal)
    with pytest.raises(error, match="leaves no room") as raised:  # the first is still running
        generation.collect()
    assert raised.value.status == status
    generation.close()
    assert generation._at_work == []


def test_only_the_first_token_has_a_deadline(checkpoint: Checkpoint) -> None:
    desk = WatchedDesk()
    desk.state = EngineState(LinkPhase.READY, "ready", READY)
    request = asked(n=2, length_penalty=1.0)
    generation = at_once(Generator(desk, checkpoint).start(request, ANYBODY, 5.0))
    assert isinstance(generation, BeamGeneration)
    step(generation, random.Random(4))
    told = [(one.deadline, one.keeps_place) for one in desk.submissions]
    assert told == [(5.0, False), (None, True), (None, True)]
    generation.close()


def test_the_prompts_logprobs_come_with_the_first_step_for_every_choice(
    checkpoint: Checkpoint,
) -> None:
    desk = WatchedDesk()
    desk.state = EngineState(LinkPhase.READY, "ready", READY)
    params = SamplingParams(max_tokens=2, logprobs=1, prompt_logprobs=1)
    request = asked(params=params, n=2, length_penalty=1.0)
    generation = at_once(Generator(desk, checkpoint).start(request, ANYBODY))
    assert isinstance(generation, BeamGeneration)
    of_prompt = [TokenLogprobs(-0.25, 1), TokenLogprobs(-0.75, 2)]
    generation.first_step[0].prompt_logprobs = of_prompt
    numbers = random.Random(4)
    while not generation.done:
        step(generation, numbers)
    computed = [
        one.task.params.prompt_logprobs
        for one in desk.submissions
        if isinstance(one.task, Generate)
    ]
    assert computed == [1, None, None]
    assert [choice.sequence.prompt_logprobs for choice in generation.choices] == [of_prompt] * 2


def test_the_tokens_of_all_beams_are_counted_also_if_the_search_does_not_end(
    checkpoint: Checkpoint,
) -> None:
    generation = search(checkpoint, width=2, tokens=50)
    assert generation.generated_tokens == 0
    generation.first_step[0].first_scheduled_time = 7.0
    say(generation, [[(20, -0.1), (21, -0.5)]])
    say(generation, [[(22, -0.6), (23, -0.9)], [(24, -0.5), (25, -0.6)]])
    assert (generation.generated_tokens, generation.output_tokens) == (3, 0)
    generation.close()
    assert [one.first_scheduled_time for one in generation.records()] == [7.0, 7.0]


def test_at_least_the_tokens_of_the_answer_are_counted(checkpoint: Checkpoint) -> None:
    generation = search(checkpoint, width=2, tokens=1)
    say(generation, [[(20, -0.1), (21, -0.5)]])
    assert (generation.generated_tokens, generation.output_tokens) == (2, 2)


def test_beams_share_their_beginnings() -> None:
    first = TokenLogprobs(-0.5, 1, packed_top([(5, -0.5), (6, -1.0), (9, -2.0)]))
    one, two, three = continued(None, first, frozenset({9}), most=20, shown=0)
    children = continued(one, first, frozenset({9}), most=20, shown=0)
    assert all(child.parent is one for child in children)
    assert [node.token for node in children[1].chain()] == [5, 6]
    assert children[1].score == pytest.approx(-1.5)
    assert (two.is_ended, three.is_ended) == (False, True)
    assert children[0].entry.packed == b""  # no alternatives were requested
