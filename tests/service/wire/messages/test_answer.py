"""Anthropic's stream, read by its SDK, is the whole message, however the tokens come in."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from engine.messages import FinishReason, SamplingParams
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.errors import EngineFailedError
from service.generation.generator import Generator
from service.generation.request import GenerationRequest
from service.tenants.caller import ANYBODY
from service.wire.messages.answer import MessagesAnswer
from service.wire.messages.signatures import Signer
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import CALL, Desk, finish

MALFORMED = [
    '<tool_call>{"name": "a", "arguments": {city: Oslo}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": {"city": "Oslo"</tool_call>',
    '<tool_call>{"name": "a", "arguments": {"city": "Oslo", "days": 1x}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": {"city": "Oslo</tool_call>',
    '<tool_call>{"name": "a", "arguments": {"re": "\\d", "x": 1}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": {"city": "\\ud83d"}}</tool_call>',
]
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


class Played:
    """An answer whose model says ``text``, in frames of the given token counts."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        text: str,
        frames: list[int],
        reason: FinishReason = FinishReason.STOP,
        *,
        shows_thinking: bool = True,
        only_prompt: bool = False,
        cache_block: int = 0,
    ) -> None:
        desk = Desk()
        generation = at_once(
            Generator(desk, checkpoint).start(
                GenerationRequest(
                    request_id="r",
                    prompts=[[1, 2, 3]],
                    params=SamplingParams(max_tokens=999),
                    arrival_time=0.0,
                    parse=True,
                    tools={},
                ),
                ANYBODY,
            )
        )
        answer = MessagesAnswer(
            generation,
            Signer("a secret of tests"),
            message_id="msg_1",
            model="tiny",
            shows_thinking=shows_thinking,
            only_prompt=only_prompt,
            cache_block=cache_block,
        )
        stream = answer.stream()
        (sequence,), (choice,) = desk.sequences, generation.choices
        ids = checkpoint.tokenizer.encode(text, add_special_tokens=False)
        out, position, counts = [stream.begin()], 0, itertools.cycle(frames)
        while not choice.done:
            count = next(counts)
            sequence.generated += ids[position : position + count]
            position += count
            if position >= len(ids):
                finish(sequence, len(ids), reason)
            choice.advance()
            out += stream.advance([choice])
        self.failed = stream.fail(EngineFailedError("gone")).decode()
        out.append(stream.end())
        self.sse = b"".join(out).decode()
        self.whole = Message.model_validate_json(b"".join(answer.whole()))

    @property
    def accumulated(self) -> Message:
        """What the official SDK makes of the events, each valid by its own types."""
        snapshot: Any = None
        buffers: dict[int, bytes] = {}
        for event in self.sse.strip().split("\n\n"):
            data = json.loads(event.split("\ndata: ")[1])
            if data["type"] != "ping":
                snapshot = accumulate_event(
                    event=_EVENT.validate_python(data, strict=True),
                    current_snapshot=snapshot,
                    json_bufs=buffers,
                )
        assert isinstance(snapshot, Message)
        return snapshot


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", CALL, " plain ", "🚀", "\n\n", *MALFORMED]),
        min_size=1,
        max_size=6,
    ),
    cut=st.sampled_from(["", CALL[:-20], CALL[:-40], CALL[:15], *MALFORMED]),
    frames=st.lists(st.integers(1, 7), min_size=1, max_size=9),
)
def test_any_frames_accumulate_to_the_whole_message(
    checkpoint: Checkpoint, reason: FinishReason, parts: list[str], cut: str, frames: list[int]
) -> None:
    played = Played(checkpoint, "".join(parts) + cut, frames, reason)
    kept = {"exclude": {"content": {"__all__": {"parsed_output"}}}}
    assert played.accumulated.model_dump(**kept) == played.whole.model_dump(**kept)
    for block in played.whole.content:
        assert block.type != "text" or block.text.strip()  # no item of white space alone
    if reason is FinishReason.LENGTH:
        assert played.whole.stop_reason == "max_tokens"


@pytest.mark.parametrize("frames", [[1], [3], [100]])
@pytest.mark.parametrize(
    ("text", "content", "reason"),
    [
        (MALFORMED[0], [("text", "a {city: Oslo}")], "end_turn"),
        (MALFORMED[1], [("tool_use", {"city": "Oslo"})], "max_tokens"),
        (MALFORMED[2], [("tool_use", {"city": "Oslo"})], "max_tokens"),
        (MALFORMED[3], [("text", 'a {"city": "Oslo')], "end_turn"),
        (
            CALL + MALFORMED[1],
            [("tool_use", {"city": "Köln 🚀"}), ("tool_use", {"city": "Oslo"})],
            "max_tokens",
        ),
        (MALFORMED[1].removesuffix("</tool_call>"), [("tool_use", {"city": "Oslo"})], "max_tokens"),
        (
            f"Sure. {MALFORMED[0]} Well.",
            [("text", t) for t in ("Sure.", "a {city: Oslo}", "Well.")],
            "end_turn",
        ),
        (
            MALFORMED[0] + CALL,
            [("text", "a {city: Oslo}"), ("tool_use", {"city": "Köln 🚀"})],
            "tool_use",
        ),
    ],
)
def test_a_malformed_call_is_never_one_without_input_and_the_sdk_reads_the_stream(
    checkpoint: Checkpoint,
    text: str,
    content: list[tuple[str, Any]],
    reason: str,
    frames: list[int],
) -> None:
    """And one that lacks some of its input has the reason of an answer that was cut."""
    played = Played(checkpoint, text, frames)
    for message in (played.whole, played.accumulated):
        found = [
            (block.type, block.input if block.type == "tool_use" else block.to_dict()["text"])
            for block in message.content
        ]
        assert found == content
        assert message.stop_reason == reason


def test_thinking_text_and_calls_are_blocks_in_the_order_they_came(checkpoint: Checkpoint) -> None:
    text = f"<think>\nHm.\n</think>\n\nLet me look.\n{CALL}\n{CALL}"
    message = Played(checkpoint, text, [1]).whole
    assert [block.type for block in message.content] == [
        *("thinking", "text", "tool_use", "tool_use")
    ]
    assert message.stop_reason == "tool_use"
    assert message.content[2].to_dict()["input"] == {"city": "Köln 🚀"}


def test_thinking_is_counted_among_the_output(checkpoint: Checkpoint) -> None:
    thought = "<think>\nHm.\n</think>"
    played = Played(checkpoint, f"{thought}\n\nSo.", [1])
    for message in (played.whole, played.accumulated):
        details = message.usage.output_tokens_details
        assert details is not None
        assert 0 < details.thinking_tokens < message.usage.output_tokens
    plain = Played(checkpoint, "So.", [1]).whole.usage.output_tokens_details
    assert plain is not None
    assert plain.thinking_tokens == 0


def test_omitted_thinking_keeps_its_block_and_a_signature_that_verifies(
    checkpoint: Checkpoint,
) -> None:
    played = Played(checkpoint, "<think>secret</think>public", [1], shows_thinking=False)
    assert "secret" not in played.sse
    thinking = played.whole.content[0]
    assert thinking.type == "thinking"
    assert (thinking.thinking, played.accumulated.content[0]) == ("", thinking)
    assert not Signer("a secret of tests").is_forged("", thinking.signature)


@pytest.mark.parametrize("text", ["Hi", "<think>why", CALL], ids=["text", "thinking", "call"])
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_without_output_the_message_is_empty_whatever_the_model_said(
    checkpoint: Checkpoint, text: str, reason: FinishReason
) -> None:
    played = Played(checkpoint, text, [1], reason, only_prompt=True)
    assert played.accumulated.model_dump() == played.whole.model_dump()
    assert (played.whole.content, played.whole.stop_reason) == ([], "max_tokens")
    assert (played.whole.usage.input_tokens, played.whole.usage.output_tokens) == (3, 0)
    assert "content_block" not in played.sse


@pytest.mark.parametrize(("block", "written"), [(1, 2), (2, 2), (3, 0)])
def test_what_the_same_prompt_cannot_read_back_is_not_a_cache_write(
    checkpoint: Checkpoint, block: int, written: int
) -> None:
    """The last of the prompt's three tokens is always computed."""
    usage = Played(checkpoint, "Hi", [1], cache_block=block).whole.usage
    assert usage.cache_creation_input_tokens == written
    assert usage.input_tokens == 3 - written


def test_a_failure_is_an_error_event_of_anthropics_vocabulary(checkpoint: Checkpoint) -> None:
    name, data = Played(checkpoint, "Hello", [1]).failed.strip().split("\ndata: ")
    assert name == "event: error"
    assert json.loads(data) == {
        "type": "error",
        "error": {"type": "api_error", "message": "gone"},
    }
