"""Reasoning and tool calls on the wire: the SDK reads a stream as it reads the whole answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engine.messages import Finished, FinishReason, SamplingParams, TokenLogprobs
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.engine.link import EngineLink
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.formats import Opening
from service.generation.choice import StopRules
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import ANYBODY
from service.wire.chat.answer import ChatAnswer
from service.wire.chat.request import chat_conversation, decode_chat
from tests.examples import examples
from tests.service.at_once import at_once

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln 🚀"}}\n</tool_call>'


class Desk(EngineLink):
    """A link whose engine is the test: sequences are fed by hand. ``answers``: each has a place at
    once."""

    def __init__(self, *, answers: bool = False) -> None:
        super().__init__(Path("unused"), on_step=lambda _: None, on_state=lambda _: None)
        self.handles = itertools.count(1)
        self.sequences: list[EngineSequence] = []
        self._answers = answers

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        length = len(submission.prompt_token_ids)
        sequences = [
            EngineSequence(
                next(self.handles),
                length,
                submission.arrival_time,
                waker,
                has_place=self._answers,
            )
            for _ in submission.seeds or [0]
        ]
        self.sequences += sequences
        return sequences


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def finish(sequence: EngineSequence, tokens: int, reason: FinishReason) -> None:
    sequence.finished = Finished(
        handle=sequence.handle,
        reason=reason,
        prompt_tokens=3,
        cached_tokens=0,
        output_tokens=tokens,
        preemptions=0,
        arrival_time=0.0,
        first_scheduled_time=0.0,
        first_token_time=0.0,
        last_token_time=0.0,
        finished_time=0.0,
    )


def end_with(sequence: EngineSequence, token: int) -> None:
    """Note that this token ended the sequence, which has finished."""
    assert sequence.finished is not None
    sequence.finished = msgspec.structs.replace(sequence.finished, stop_token_id=token)


def fail(sequence: EngineSequence, error: str, *, is_refusal: bool) -> None:
    finish(sequence, 0, FinishReason.ERROR)
    assert sequence.finished is not None
    record = msgspec.structs.replace(sequence.finished, error=error, is_refusal=is_refusal)
    sequence.finished = record


class Played:
    """An answer to a request whose model says ``text``, in frames of the given token counts."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        text: str,
        frames: Iterator[int],
        *,
        reason: FinishReason = FinishReason.STOP,
        opening: Opening = Opening.TEXT,
        stop: tuple[str, ...] = (),
        **fields: Any,
    ) -> None:
        desk = Desk()
        body = {"messages": [{"role": "user", "content": "x"}], **fields}
        chat = decode_chat(json.dumps(body).encode(), max_choices=4)
        self.generation: Generation = at_once(
            Generator(desk, checkpoint).start(
                GenerationRequest(
                    request_id="r",
                    prompts=[[1, 2, 3]],
                    params=SamplingParams(max_tokens=999),
                    arrival_time=0.0,
                    parse=True,
                    tools=chat_conversation(chat).tool_schemas(),
                    opening=opening,
                    stop=StopRules(strings=stop),
                ),
                ANYBODY,
            )
        )
        answer = ChatAnswer(
            chat,
            self.generation,
            checkpoint.vocabulary,
            response_id="chatcmpl-1",
            created=1,
            model="tiny",
        )
        stream = answer.stream()
        (sequence,) = desk.sequences
        (choice,) = self.generation.choices
        ids = checkpoint.tokenizer.encode(text, add_special_tokens=False)
        out = [stream.begin()]
        position = 0
        while not choice.done:
            count = next(frames)
            arrived = ids[position : position + count]
            sequence.generated += arrived
            if chat.logprobs:
                sequence.logprobs += [TokenLogprobs(-0.5, 1, b"")] * len(arrived)
            position += count
            if position >= len(ids):
                finish(sequence, len(ids), reason)
            choice.advance()
            out += stream.advance([choice])
        out.append(stream.end())
        self.sse = b"".join(out).decode()
        self.whole_json = b"".join(answer.whole()).decode()
        self.whole = ChatCompletion.model_validate_json(self.whole_json)

    @property
    def chunks(self) -> list[ChatCompletionChunk]:
        events = self.sse.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [
            ChatCompletionChunk.model_validate_json(event.removeprefix("data: "))
            for event in events[:-2]
        ]

    def accumulated(self) -> ChatCompletion:
        """What the official SDK makes of the chunks."""
        state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
        for chunk in self.chunks:
            state.handle_chunk(chunk)
        return state.current_completion_snapshot


def one_each() -> Iterator[int]:
    return itertools.repeat(1)


def test_the_sdk_sees_reasoning_text_and_two_calls(checkpoint: Checkpoint) -> None:
    text = f"<think>\nHm.\n</think>\n\nLet me look.\n{CALL}\n{CALL}"
    played = Played(checkpoint, text, one_each(), tools=[TOOL])
    choice = played.whole.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    assert choice.message.to_dict()["reasoning"] == "Hm."
    assert choice.message.to_dict()["reasoning_content"] == "Hm."
    calls = choice.message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather", "weather"]
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Köln 🚀"}] * 2
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_any_frames_stream_to_the_whole_answer_ids_and_all(
    checkpoint: Checkpoint, reason: FinishReason, data: st.DataObject
) -> None:
    parts = st.sampled_from(["<think>", "</think>", CALL, CALL[:-20], " plain ", "🚀", "\n"])
    text = "".join(data.draw(st.lists(parts, min_size=1, max_size=6)))
    frames = data.draw(st.lists(st.integers(1, 7), min_size=1))
    played = Played(checkpoint, text, itertools.cycle(frames), reason=reason, tools=[TOOL])
    whole, streamed = played.whole.choices[0], played.accumulated().choices[0]
    assert streamed.finish_reason == whole.finish_reason
    assert (streamed.message.content or "") == (whole.message.content or "")
    assert _calls(streamed.message) == _calls(whole.message)
    reasoning = "".join(
        chunk.choices[0].delta.to_dict().get("reasoning", "")  # type: ignore[misc]  # an extra
        for chunk in played.chunks
    )
    assert reasoning == whole.message.to_dict().get("reasoning", "")
    if reason is FinishReason.LENGTH:
        assert whole.finish_reason == "length"


@pytest.mark.parametrize("shown", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(data=st.data())
def test_any_frames_stream_the_logprobs_of_the_whole_answer(
    checkpoint: Checkpoint, shown: bool, data: st.DataObject
) -> None:
    parts = st.sampled_from(["<think>", "</think>", CALL, " plain ", "word", "\n"])
    text = "".join(data.draw(st.lists(parts, min_size=1, max_size=8)))
    frames = data.draw(st.lists(st.integers(1, 7), min_size=1))
    fields: dict[str, Any] = {"tools": [TOOL], "logprobs": True, "include_reasoning": shown}
    played = Played(checkpoint, text, itertools.cycle(frames), **fields)
    streamed = [
        entry.token
        for chunk in played.chunks
        for choice in chunk.choices
        for entry in (choice.logprobs and choice.logprobs.content) or []
    ]
    assert streamed == _spelled(played)


def _spelled(played: Played) -> list[str]:
    logprobs = played.whole.choices[0].logprobs
    assert logprobs is not None
    return [entry.token for entry in logprobs.content or []]


def test_logprobs_do_not_spell_hidden_reasoning(checkpoint: Checkpoint) -> None:
    text = "<think>\nLet me see.\n</think>\n\nWell, then."
    for shown, spelled in ((True, text), (False, "Well, then.")):
        fields: dict[str, Any] = {"logprobs": True, "include_reasoning": shown}
        played = Played(checkpoint, text, one_each(), **fields)
        assert "".join(_spelled(played)) == spelled
    for thought in ("x", "\n"):
        text = f"<think>{thought}</think>{CALL}"
        called = Played(checkpoint, text, one_each(), tools=[TOOL], **fields)
        assert "".join(_spelled(called)).startswith("<tool_call>")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("\n</think>\n\nHello.", "Hello."),
        ("</think>First line.\n<think>hm</think>Second line.", "First line.\nSecond line."),
        ("</think>First line.\n</tool_call>Second line.", "First line.\nSecond line."),
    ],
)
def test_logprobs_without_reasoning_spell_the_answer(
    checkpoint: Checkpoint, text: str, spelled: str
) -> None:
    fields: dict[str, Any] = {"logprobs": True, "include_reasoning": False, "tools": [TOOL]}
    played = Played(checkpoint, text, one_each(), opening=Opening.REASONING, **fields)
    assert "".join(_spelled(played)) == spelled
    assert played.whole.choices[0].message.content == spelled


def _calls(message: Any) -> list[tuple[str, str, str]]:
    return [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []
    ]


def test_without_reasoning_its_fields_are_left_out(checkpoint: Checkpoint) -> None:
    for fields in ({}, {"include_reasoning": False}):
        text = "<think>Hm.</think>Hello." if fields else "Hello."
        message = Played(checkpoint, text, one_each(), **fields).whole.choices[0].message
        assert message.content == "Hello."
        assert not {"reasoning", "reasoning_content"} & message.to_dict().keys()


def test_a_call_that_was_cut_off_finishes_with_length(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, CALL[:-25], one_each(), reason=FinishReason.LENGTH, tools=[TOOL])
    assert played.whole.choices[0].finish_reason == "length"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(
    parts=st.lists(st.sampled_from([CALL, CALL[:-20], CALL[:40], " so ", "<think>", "</think>"])),
    frames=st.lists(st.integers(1, 30), min_size=1),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_tool_calls_is_the_reason_only_where_there_is_a_whole_call(
    checkpoint: Checkpoint, parts: list[str], frames: list[int], reason: FinishReason
) -> None:
    text = "".join(parts)
    played = Played(checkpoint, text, itertools.cycle(frames), reason=reason, tools=[TOOL])
    for choice in (played.whole.choices[0], played.accumulated().choices[0]):
        if choice.finish_reason == "tool_calls":
            assert reason is FinishReason.STOP
            assert {"city": "Köln 🚀"} in [_arguments(call) for call in _calls(choice.message)]
    if reason is FinishReason.STOP and parts == [CALL] * len(parts) and parts:
        assert played.whole.choices[0].finish_reason == "tool_calls"
    assert '"tool_calls":[]' not in played.sse + played.whole_json


def _arguments(call: tuple[str, str, str]) -> Any:
    with suppress(json.JSONDecodeError):
        return json.loads(call[2])
    return None


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("body", ['{"name": "weather", "arguments": {}}', '{"name": "weather"}'])
def test_a_call_without_arguments_streams_an_empty_object(
    checkpoint: Checkpoint, body: str, size: int
) -> None:
    text = f"<tool_call>\n{body}\n</tool_call>\n{CALL}"
    played = Played(checkpoint, text, itertools.repeat(size), tools=[TOOL])
    for choice in (played.whole.choices[0], played.accumulated().choices[0]):
        assert [_arguments(call) for call in _calls(choice.message)] == [{}, {"city": "Köln 🚀"}]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_that_is_not_json_is_shown_verbatim_and_not_as_a_completed_call(
    checkpoint: Checkpoint, size: int
) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {city: Oslo}}\n</tool_call>'
    played = Played(checkpoint, text, itertools.repeat(size), tools=[TOOL])
    for choice in (played.whole.choices[0], played.accumulated().choices[0]):
        assert choice.finish_reason == "stop"
        assert [call[2] for call in _calls(choice.message)] == ["{city: Oslo}"]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("end", [f"\n{CALL}", "", "?"], ids=["call", "held", "released"])
def test_a_stop_string_that_never_comes_whole_changes_nothing(
    checkpoint: Checkpoint, end: str, size: int
) -> None:
    """While text is held back, it stays with its tokens, and on its side of the reasoning."""
    text = f"<think>\nEN then END then\n</think>\n\nTo the END: EN 🚀 EN{end}"
    fields: dict[str, Any] = {"tools": [TOOL], "return_token_ids": True}
    free = Played(checkpoint, text, itertools.repeat(size), **fields)
    held = Played(checkpoint, text, itertools.repeat(size), stop=("END of", "EN 🚀 END"), **fields)
    expected: dict[str, Any] = free.whole.choices[0].to_dict()
    choice: dict[str, Any] = held.whole.choices[0].to_dict()
    for each in (expected, choice):
        for call in each["message"].get("tool_calls", ()):
            call.pop("id")
    assert choice == expected
    parts: list[dict[str, Any]] = [chunk.choices[0].to_dict() for chunk in held.chunks]
    assert [token for part in parts for token in part.get("token_ids", ())] == choice["token_ids"]
    for kind in ("reasoning", "content"):
        said = "".join(part["delta"].get(kind) or "" for part in parts)
        assert said == choice["message"][kind]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_stop_string_inside_a_call_ends_it_without_tool_calls(
    checkpoint: Checkpoint, size: int
) -> None:
    played = Played(checkpoint, CALL, itertools.repeat(size), stop=("Köln",), tools=[TOOL])
    for choice in (played.whole.choices[0], played.accumulated().choices[0]):
        assert choice.finish_reason == "stop"
        assert [call[2] for call in _calls(choice.message)] == ['{"city": "']
    assert played.whole.choices[0].to_dict()["stop_reason"] == "Köln"
    assert "Köln" not in "".join(str(chunk.choices[0].delta.tool_calls) for chunk in played.chunks)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_stop_string_behind_a_whole_call_leaves_it_a_call(
    checkpoint: Checkpoint, size: int
) -> None:
    text = f"{CALL}\nOBSERVATION: none"
    played = Played(checkpoint, text, itertools.repeat(size), stop=("OBSERVATION",), tools=[TOOL])
    for choice in (played.whole.choices[0], played.accumulated().choices[0]):
        assert choice.finish_reason == "tool_calls"
        assert [_arguments(call) for call in _calls(choice.message)] == [{"city": "Köln 🚀"}]
        assert not choice.message.content


def test_without_tools_the_same_text_is_content(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, CALL, one_each())
    choice = played.whole.choices[0]
    assert (choice.message.content, choice.finish_reason) == (CALL, "stop")
    assert choice.message.tool_calls is None


def test_reasoning_can_be_left_out_of_both_forms(checkpoint: Checkpoint) -> None:
    text = "<think>secret</think>public"
    played = Played(checkpoint, text, one_each(), include_reasoning=False)
    assert played.whole.choices[0].message.content == "public"
    assert "secret" not in played.sse
    assert "secret" not in played.whole.to_json()
    assert played.whole.usage is not None
    details = played.whole.usage.completion_tokens_details
    assert details is not None
    assert details.reasoning_tokens


def test_a_prompt_that_opened_reasoning_is_continued_there(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, "so\n</think>\nyes", one_each(), opening=Opening.REASONING)
    assert played.whole.choices[0].message.content == "yes"
    assert played.whole.choices[0].message.to_dict()["reasoning"] == "so"


def test_text_that_needs_escaping_survives_the_frozen_chunks(checkpoint: Checkpoint) -> None:
    text = 'quote " backslash \\ newline \n tab \t nul \x00 é 🚀 </script> \u2028'
    played = Played(checkpoint, text, one_each())
    assert played.accumulated().choices[0].message.content == text
    assert played.sse.count("\r") == 0


def test_timings_so_far_come_with_each_chunk_that_has_usage(checkpoint: Checkpoint) -> None:
    fields = {"stream": True, "timings": True}
    options = {"continuous_usage_stats": True}
    often = Played(checkpoint, "a b c", one_each(), **fields, stream_options=options).chunks
    once = Played(checkpoint, "a b c", one_each(), **fields).chunks
    assert all("timings" in (chunk.model_extra or {}) for chunk in often)
    assert ["timings" in (chunk.model_extra or {}) for chunk in once] == [
        index == len(once) - 1 for index in range(len(once))
    ]
