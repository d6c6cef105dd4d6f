"""The event log as gRPC messages: nothing is lost, changed, or sent twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import FinishReason, SamplingParams, TokenLogprobs, packed_top
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.errors import EngineFailedError
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.grpc.events import ChatEvents, GenerateEvents
from service.proto.quire.v1 import quire_pb2 as pb
from service.tenants.caller import ANYBODY
from service.wire.logprobs import MIN_LOGPROB
from tests.service.at_once import at_once
from tests.service.grpc.clients import Answer, put_together
from tests.service.wire.chat.test_answer import Desk, finish

SAID = [
    "<think>\nHm, Köln?\n</think>\n\nLet me look. 🚀",
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln 🚀"}}\n</tool_call>',
]
CLIENTS_TAKE = 4 << 20


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


class Said:
    """Two choices that say ``SAID``, parsed or not, a few tokens at a time."""

    def __init__(self, checkpoint: Checkpoint, *, parse: bool) -> None:
        self._desk = Desk()
        request = GenerationRequest(
            "req_1",
            [[1, 2, 3]],
            SamplingParams(max_tokens=999),
            0.0,
            n=len(SAID),
            seed=7,
            parse=parse,
            tools={"weather": {"type": "object"}} if parse else None,
        )
        self.generation: Generation = at_once(
            Generator(self._desk, checkpoint).start(request, ANYBODY)
        )
        encode = checkpoint.tokenizer.encode
        self.tokens = [encode(text, add_special_tokens=False) for text in SAID]

    def logprob(self, token: int) -> TokenLogprobs:
        return TokenLogprobs(-float("inf"), 2, packed_top([(token, -0.5), (1, -2.0)]))

    def frames(self, sizes: Iterator[int]) -> Iterator[list[Any]]:
        """The choices that changed, frame by frame."""
        places = [0] * len(SAID)
        open_ones = list(self.generation.choices)
        while open_ones:
            for choice in list(open_ones):
                tokens, place = self.tokens[choice.index], places[choice.index]
                fresh = tokens[place : place + next(sizes)]
                places[choice.index] += len(fresh)
                sequence = choice.sequence
                sequence.generated += fresh
                sequence.logprobs += [self.logprob(token) for token in fresh]
                if places[choice.index] == len(tokens):
                    finish(sequence, len(tokens), FinishReason.STOP)
                choice.advance(len(fresh) + 1)
                if choice.done:
                    open_ones.remove(choice)
            yield self.generation.choices


def sent(
    kind: type[ChatEvents | GenerateEvents],
    checkpoint: Checkpoint,
    said: Said,
    *,
    sizes: Iterator[int],
    logprobs: int | None = None,
) -> list[Any]:
    """All messages of the stream, as a client reads them."""
    response = pb.ChatResponse if kind is ChatEvents else pb.GenerateResponse
    events = kind(
        said.generation, checkpoint.vocabulary, model="tiny", created=5, logprobs=logprobs
    )
    data = list(events.begin())
    for choices in said.frames(sizes):
        for messages in events.advance(choices):
            data += messages
        assert list(events.advance(choices)) == []  # everything was sent
    data += events.end()
    assert events.failure is None
    return [response.FromString(message) for message in data]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@given(SIZES, st.sampled_from([None, 0, 2]))
def test_a_chat_is_the_same_however_its_tokens_come(
    checkpoint: Checkpoint, sizes: list[int], logprobs: int | None
) -> None:
    said = Said(checkpoint, parse=True)
    messages = sent(ChatEvents, checkpoint, said, sizes=itertools.cycle(sizes), logprobs=logprobs)
    answer: Answer = put_together(messages)
    first, second = answer.choices
    assert (first.reasoning, first.text) == ("Hm, Köln?", "Let me look. 🚀")
    assert second.calls == [{"name": "weather", "arguments": '{"city": "Köln 🚀"}'}]
    assert second.ended_calls == 1
    assert [each.finished and each.finished.reason for each in answer.choices] == [
        "stop",
        "tool_calls",
    ]
    assert (answer.started.request_id, answer.started.prompt_tokens) == ("req_1", 3)
    assert answer.usage.completion_tokens == sum(map(len, said.tokens))
    assert answer.usage.total_tokens == answer.usage.completion_tokens + 3
    for choice, tokens in zip(answer.choices, said.tokens, strict=True):
        shown = [entry.token_id for entry in choice.logprobs]
        assert shown == ([] if logprobs is None else tokens)


@given(SIZES, st.sampled_from([None, 0, 2]))
def test_generate_returns_every_token_and_the_whole_text(
    checkpoint: Checkpoint, sizes: list[int], logprobs: int | None
) -> None:
    said = Said(checkpoint, parse=False)
    messages = sent(
        GenerateEvents, checkpoint, said, sizes=itertools.cycle(sizes), logprobs=logprobs
    )
    answer = put_together(messages)
    for choice, text, tokens in zip(answer.choices, SAID, said.tokens, strict=True):
        assert (choice.text, choice.tokens) == (text, tokens)
        assert choice.finished is not None
        assert choice.finished.tokens == len(tokens)
        assert [entry.token_id for entry in choice.logprobs] == ([] if logprobs is None else tokens)
        assert {len(entry.top) for entry in choice.logprobs} <= {logprobs}
        # JSON has no infinity, and both APIs say the same.
        assert {entry.logprob for entry in choice.logprobs} <= {MIN_LOGPROB}
        assert b"".join(entry.token for entry in choice.logprobs) in (b"", text.encode())


@pytest.mark.parametrize("kind", [ChatEvents, GenerateEvents])
def test_events_that_came_at_once_are_split_into_messages_that_clients_accept(
    checkpoint: Checkpoint, kind: type[ChatEvents | GenerateEvents]
) -> None:
    said = Said(checkpoint, parse=False)
    said.tokens = [said.tokens[0] * 400] * len(SAID)
    count = len(said.tokens[0])
    messages = sent(kind, checkpoint, said, sizes=itertools.repeat(count), logprobs=2)
    assert sum(message.ByteSize() for message in messages) > CLIENTS_TAKE / 8
    assert max(message.ByteSize() for message in messages) < CLIENTS_TAKE / 8
    answer = put_together(messages)
    assert [len(choice.logprobs) for choice in answer.choices] == [count] * 2


def test_a_failure_is_kept_for_the_status_and_no_message(checkpoint: Checkpoint) -> None:
    generation = Said(checkpoint, parse=True).generation
    events = ChatEvents(generation, checkpoint.vocabulary, model="m", created=5, logprobs=None)
    error = EngineFailedError("gone")
    assert events.fail(error) == []
    assert events.failure is error
