"""However much has gathered, and whatever is read of it, the event loop is soon free again."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine.messages import FinishReason, SamplingParams, TokenLogprobs, packed_top
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.generation.choice import MOST_TOKENS, StopRules
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.output.events import Event, TextDelta, ToolArgumentsDelta, ToolCallBegin
from service.output.log import fold
from service.tenants.caller import ANYBODY
from service.wire.chat.answer import ChatAnswer
from service.wire.chat.request import decode_chat
from service.wire.messages.block_cutter import blocks_of
from service.wire.messages.partial_json import read_cut_object
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk, Played, finish

TOP = packed_top([(token, -0.5 * token) for token in range(20)])


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def begun(
    checkpoint: Checkpoint, desk: Desk, *, n: int = 1, stop: tuple[str, ...] = ()
) -> Generation:
    return at_once(
        Generator(desk, checkpoint).start(
            GenerationRequest(
                request_id="r",
                prompts=[[1, 2, 3]],
                params=SamplingParams(max_tokens=10**6, logprobs=20),
                arrival_time=0.0,
                n=n,
                stop=StopRules(strings=stop),
            ),
            ANYBODY,
        )
    )


def answer_to(checkpoint: Checkpoint, generation: Generation, **fields: Any) -> ChatAnswer:
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    return ChatAnswer(
        decode_chat(json.dumps(body).encode(), max_choices=16),
        generation,
        checkpoint.vocabulary,
        response_id="chatcmpl-1",
        created=1,
        model="tiny",
    )


def feed(checkpoint: Checkpoint, desk: Desk, count: int, *, end: bool) -> None:
    [token, *_] = checkpoint.tokenizer.encode("a", add_special_tokens=False)
    for sequence in desk.sequences:
        sequence.generated += [token] * count
        sequence.logprobs += [TokenLogprobs(-0.5, 1, TOP)] * count
        if end:
            finish(sequence, count, FinishReason.LENGTH)
        sequence.waker.wake()


async def test_a_backlog_is_taken_in_bit_by_bit_and_nothing_is_lost(
    checkpoint: Checkpoint,
) -> None:
    desk = Desk()
    generation = begun(checkpoint, desk, n=3)
    feed(checkpoint, desk, 5_000, end=True)
    rounds, before = 0, 0
    while not generation.done:
        await generation.advance()
        taken = sum(len(choice.tokens) for choice in generation.choices)
        assert 0 < taken - before <= MOST_TOKENS
        before, rounds = taken, rounds + 1
        assert generation.behind == (not generation.done)
    assert rounds >= 3 * 5_000 // MOST_TOKENS
    for choice in generation.choices:
        assert len(choice.tokens) == len(choice.logprobs) == 5_000
        assert choice.finished is not None
        assert choice.finished.reason == "length"
        assert fold(choice.events).content == "a" * 5_000


async def test_a_stop_string_in_a_backlog_ends_it_there(checkpoint: Checkpoint) -> None:
    desk = Desk()
    generation = begun(checkpoint, desk, stop=("b",))
    [sequence] = desk.sequences
    ids = checkpoint.tokenizer.encode("a" * 4_000 + "b" + "a" * 4_000, add_special_tokens=False)
    sequence.generated += ids
    sequence.logprobs += [TokenLogprobs(-0.5, 1, TOP)] * len(ids)
    finish(sequence, len(ids), FinishReason.LENGTH)
    sequence.waker.wake()
    while not generation.done:
        await generation.advance()
    [choice] = generation.choices
    assert choice.finished is not None
    assert (choice.finished.reason, choice.finished.matched) == ("stop", "b")
    assert fold(choice.events).content == "a" * 4_000
    assert len(choice.tokens) == len(choice.logprobs)


@pytest.mark.parametrize("streams", [False, True])
async def test_every_piece_of_an_answer_with_logprobs_is_short_work(
    checkpoint: Checkpoint, streams: bool
) -> None:
    desk = Desk()
    generation = begun(checkpoint, desk, n=4)
    answer = answer_to(checkpoint, generation, n=4, stream=streams, logprobs=True, top_logprobs=20)
    stream = answer.stream()
    feed(checkpoint, desk, 3_000, end=True)
    longest = 0.0
    size = 0
    begin = time.thread_time()

    def count(piece: bytes) -> None:
        nonlocal longest, size, begin
        longest = max(longest, time.thread_time() - begin)
        size += len(piece)
        begin = time.thread_time()

    while not generation.done:
        changed = generation.collect()
        for piece in stream.advance(changed) if streams else ():
            count(piece)
    if not streams:
        for piece in answer.whole():
            count(piece)
    assert size > 4 * 3_000 * 21 * 30
    assert longest < 0.05


def test_pieces_of_a_whole_answer_are_its_json(checkpoint: Checkpoint) -> None:
    desk = Desk()
    generation = begun(checkpoint, desk, n=2)
    fields = {"n": 2, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1}
    answer = answer_to(checkpoint, generation, **fields)
    desk.sequences[0].prompt_logprobs = [TokenLogprobs(-0.5, 1, TOP)] * 2
    feed(checkpoint, desk, 3, end=True)
    while not generation.done:
        generation.collect()
    told = json.loads(b"".join(answer.whole()))
    assert [choice["index"] for choice in told["choices"]] == [0, 1]
    for choice in told["choices"]:
        assert choice["message"]["content"] == "aaa"
        assert [len(one["top_logprobs"]) for one in choice["logprobs"]["content"]] == [2, 2, 2]
    assert [None if one is None else len(one) for one in told["prompt_logprobs"]] == [None, 2, 2]


def test_continuous_usage_counts_the_tokens_sent_for_the_choice(checkpoint: Checkpoint) -> None:
    played = Played(
        checkpoint,
        "one two three four",
        itertools.repeat(5),
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        return_token_ids=True,
    )
    chunks = [json.loads(event.removeprefix("data: ")) for event in played.sse.split("\n\n")[:-2]]
    told = 0
    for chunk in chunks:
        for choice in chunk["choices"]:
            told += len(choice.get("token_ids", ()))
        assert chunk["usage"]["completion_tokens"] == told
    assert chunks[0]["usage"]["completion_tokens"] == 0
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks[:-1]]
    assert len(set(counts)) > 3  # though five tokens came in one frame


def test_continuous_usage_of_a_choice_leaves_out_the_others(checkpoint: Checkpoint) -> None:
    desk = Desk()
    generation = begun(checkpoint, desk, n=2)
    options = {"continuous_usage_stats": True}
    answer = answer_to(checkpoint, generation, n=2, stream=True, stream_options=options)
    stream = answer.stream()
    feed(checkpoint, desk, 2, end=True)
    out = stream.begin() + b"".join(stream.advance(generation.collect()))
    counts: dict[int, list[int]] = {0: [], 1: []}
    for event in out.decode().split("\n\n")[:-1]:
        chunk = json.loads(event.removeprefix("data: "))
        counts[chunk["choices"][0]["index"]].append(chunk["usage"]["completion_tokens"])
    assert counts == {0: [0, 1, 2, 2], 1: [0, 1, 2, 2]}


def test_many_small_deltas_are_joined_once() -> None:
    """Each copied what came before: these would take minutes."""
    count, piece = 100_000, "x" * 20
    call = ToolCallBegin(0, "id", "name", 0, 1)
    start = '{"a": 1, "b": "'
    begun = ToolArgumentsDelta(0, start, 0, 1)
    events: list[Event] = [call, begun, *[ToolArgumentsDelta(0, piece, 0, 1)] * count]
    begin = time.thread_time()
    [folded] = fold(events).tool_calls
    [block] = blocks_of(events)
    [said] = blocks_of([TextDelta(piece, 0, 1)] * count)
    assert len(said.text) == count * len(piece)
    assert len(folded.arguments) == len(block.text) == len(start) + count * len(piece)
    assert time.thread_time() - begin < 5


@pytest.mark.parametrize("start", ["", '{"a": "', '{"a": ', '{"a": "\\u1', '{"a": [1, 2, "'])
def test_many_small_deltas_of_a_call_that_has_to_wait_are_joined_once(start: str) -> None:
    """Output that a client cannot read as input yet is held, and becomes text in the end."""
    count, piece = 100_000, "1" * 20
    events: list[Event] = [ToolCallBegin(0, "id", "name", 0, 1)]
    events += [ToolArgumentsDelta(0, start, 0, 1), *[ToolArgumentsDelta(0, piece, 0, 1)] * count]
    begin = time.thread_time()
    [block] = blocks_of([*events, TextDelta("so", 0, 1)])[:1]
    assert block.text == f"name {start}{piece * count}"
    assert time.thread_time() - begin < 5


def test_deeply_nested_arguments_that_were_cut_are_read_in_linear_time() -> None:
    begin = time.thread_time()
    assert read_cut_object('{"a": ' + "[" * 100_000) == {}
    assert time.thread_time() - begin < 2
