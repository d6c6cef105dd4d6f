"""A response on the wire: the SDK's types take every event, and a stream, the whole answer and the
items in the last event are one and the same, however the tokens came."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.messages import FinishReason, SamplingParams, TokenLogprobs
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.errors import EngineFailedError
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import ANYBODY
from service.wire.responses.answer import ResponseAnswer, ResponseEnding
from service.wire.responses.conversation import own_items, read_request
from service.wire.responses.request import decode_responses
from tests.examples import examples
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk, finish, one_each

CHECKED_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOLS = [
    {"type": "function", "name": "weather", "parameters": {"type": "object"}},
    {"type": "custom", "name": "shell", "description": "Runs it"},
    {
        "type": "namespace",
        "name": "clock",
        "description": "Time",
        "tools": [{"type": "function", "name": "sleep", "parameters": {"type": "object"}}],
    },
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln 🚀"}}\n</tool_call>'
SLEEP = '<tool_call>\n{"name": "sleep", "arguments": {"ms": 5}}\n</tool_call>'
SHELL = (
    '<tool_call>\n{"name": "shell", "arguments": '
    '{"input": "ls \\"a\\"\\n# ü\\ud83d\\ude80"}}\n</tool_call>'
)
IDS = re.compile(r"call_[0-9a-f]+")


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


class Played:
    """A response whose model says ``output``, in frames of the given token counts."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        output: str,
        frames: Iterator[int],
        *,
        reason: FinishReason = FinishReason.STOP,
        fails: bool = False,
        is_left: bool = False,
        **fields: Any,
    ) -> None:
        desk = Desk()
        request = decode_responses(json.dumps({"input": "x", "tools": TOOLS, **fields}).encode())
        read = read_request(request, [], own_items(request), str)
        self.generation: Generation = at_once(
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
        self.endings: list[ResponseEnding] = []
        self.answer = ResponseAnswer(
            request,
            self.generation,
            checkpoint.vocabulary,
            read.toolbox,
            response_id=f"resp_{'0' * 32}",
            created=1,
            model="tiny",
            ignored=read.ignored,
            seal=lambda text: f"sealed {len(text)}",
            on_end=self.endings.append,
        )
        stream = self.answer.stream()
        (sequence,) = desk.sequences
        (choice,) = self.generation.choices
        ids = checkpoint.tokenizer.encode(output, add_special_tokens=False)
        out = [stream.begin()]
        position = 0
        while not choice.done:
            count = next(frames)
            sequence.generated += ids[position : position + count]
            if request.shows_logprobs:
                missing = len(sequence.generated) - len(choice.logprobs) - len(sequence.logprobs)
                sequence.logprobs += [TokenLogprobs(-0.5, 1, b"")] * missing
            position = min(len(ids), position + count)
            if position == len(ids) and not (fails or is_left):
                finish(sequence, len(ids), reason)
            choice.advance()
            out += stream.advance([choice])
            if position == len(ids) and fails:
                out.append(stream.fail(EngineFailedError("the engine died")))
                break
            if position == len(ids) and is_left:
                stream.abandon()
                break
        else:
            out.append(stream.end())
        self.sent = b"".join(out)
        self.body = stream.body

    @property
    def events(self) -> list[dict[str, Any]]:
        found = []
        for block in self.sent.decode().split("\n\n")[:-1]:
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
        return found

    @property
    def final(self) -> dict[str, Any]:
        last: dict[str, Any] = self.events[-1]["response"]
        return last

    @property
    def kinds(self) -> list[str]:
        return [item["type"] for item in self.final["output"]]


def check(played: Played) -> None:
    """What holds for every stream that there can be."""
    events = played.events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    for event in events:
        CHECKED_EVENT.validate_python(event, strict=True)
    streamed = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert streamed == played.final["output"]
    assert json.loads(played.body) == played.final
    (ending,) = played.endings
    assert json.loads(ending.body) == played.final
    assert [json.loads(item) for item in ending.output] == streamed
    deltas: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            assert event["delta"]
            index = event["output_index"]
            deltas[index] = deltas.get(index, "") + event["delta"]
    for index, item in enumerate(streamed):
        texts = [part["text"] for part in item.get("content") or item.get("summary") or ()]
        shown = texts or [item.get("arguments", item.get("input"))]
        assert deltas.get(index, "") == "".join(shown)
        assert not texts or "".join(texts).strip()


def accumulated(played: Played) -> Response:
    """What the SDK's own accumulator makes of the stream."""
    state: ResponseStreamState[Any] = ResponseStreamState(text_format=omit, input_tools=[])
    for event in played.events:
        typed = construct_type(type_=ResponseStreamEvent, value=event)
        state.handle_event(typed)  # type: ignore[arg-type] # the SDK builds its own union so
    assert state._completed_response is not None
    return state._completed_response


PIECES = st.sampled_from(
    [
        *("Hello", " ", "\n\n", "<think>", "</think>", "why? ", CALL, SLEEP, SHELL, "<tool_call>"),
        *("<tool", "</tool_call>", '{"name": "weather"', "🚀", "é", '"\\'),
    ]
)


@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(PIECES, max_size=9), st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_any_output_in_any_frames_is_one_answer(
    checkpoint: Checkpoint, pieces: list[str], frames: list[int], cut: bool
) -> None:
    text = "".join(pieces)
    reason = FinishReason.LENGTH if cut else FinishReason.STOP
    played = Played(checkpoint, text, itertools.cycle(frames), reason=reason)
    check(played)
    at_once = Played(checkpoint, text, itertools.repeat(10_000), reason=reason)
    whole = json.loads(b"".join(played.answer.whole()))
    for other in (whole, at_once.final):
        same = {**other, "completed_at": None}
        mine = {**played.final, "completed_at": None}
        assert IDS.sub("", json.dumps(same)) == IDS.sub("", json.dumps(mine))
    assert whole["output"] == played.final["output"]  # to the very ids


def test_a_stream_is_created_continues_and_completes(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, "Hi there", one_each())
    check(played)
    kinds = [key for key, _ in itertools.groupby(event["type"] for event in played.events)]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert accumulated(played).output_text == "Hi there"


def test_reasoning_text_and_calls_keep_their_order(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, f"<think>why</think>Let me see.{CALL}{SLEEP}", one_each())
    check(played)
    assert played.kinds == ["reasoning", "message", "function_call", "function_call"]
    call, sleep = played.final["output"][2:]
    assert json.loads(call["arguments"]) == {"city": "Köln 🚀"}
    assert (sleep["name"], sleep["namespace"]) == ("sleep", "clock")
    assert "namespace" not in call
    assert played.final["status"] == "completed"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("cut", [0, 1, 20, len(CALL) - 12], ids=lambda cut: f"{cut} less")
def test_the_syntax_of_a_call_is_never_output_text(
    checkpoint: Checkpoint, size: int, cut: int
) -> None:
    text = f"<think>why</think>Let me see.\n\n{SLEEP}\n\n{CALL}"
    text = text[: len(text) - cut]
    reason = FinishReason.LENGTH if cut else FinishReason.STOP
    played = Played(checkpoint, text, itertools.repeat(size), reason=reason)
    check(played)
    deltas = [e["delta"] for e in played.events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas).strip() == "Let me see."
    assert [item["type"] for item in played.final["output"][:3]] == [
        *("reasoning", "message", "function_call")
    ]


def test_a_custom_tools_text_streams_as_plain_text(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, SHELL, one_each())
    check(played)
    (item,) = played.final["output"]
    assert item["type"] == "custom_tool_call"
    assert item["input"] == 'ls "a"\n# ü🚀'
    kinds = [event["type"] for event in played.events]
    assert kinds.count("response.custom_tool_call_input.delta") > 3


def test_white_space_makes_no_item(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, f"<think>\n\n</think>\n\n{CALL}\n", one_each())
    check(played)
    assert played.kinds == ["function_call"]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_that_was_cut_is_incomplete_and_so_is_the_response(
    checkpoint: Checkpoint, size: int
) -> None:
    text = CALL[: CALL.index("Köln")]
    played = Played(checkpoint, text, itertools.repeat(size), reason=FinishReason.LENGTH)
    check(played)
    assert played.events[-1]["type"] == "response.incomplete"
    assert played.final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert played.final["output"][-1]["status"] == "incomplete"


def test_a_model_that_stops_inside_a_call_has_not_completed(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, CALL[: CALL.index("Köln")], one_each())
    check(played)
    assert played.final["status"] == "incomplete"
    assert played.final["incomplete_details"] == {"reason": None}


def test_text_that_was_cut_is_incomplete(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, "Hello", one_each(), reason=FinishReason.LENGTH)
    check(played)
    assert played.final["status"] == "incomplete"
    assert played.final["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("text", ["Hel", "<think>why", CALL[:60], CALL, "\n\n"])
def test_a_failure_ends_the_stream_as_failed_with_what_was_streamed(
    checkpoint: Checkpoint, text: str
) -> None:
    played = Played(checkpoint, text, one_each(), fails=True)
    check(played)
    assert played.events[-1]["type"] == "response.failed"
    assert played.final["error"] == {"code": "server_error", "message": "the engine died"}
    assert played.endings[0].status == "failed"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [("Hel", ["message"]), ("<think>why", ["reasoning"]), (CALL[:60], ["function_call"])],
)
def test_what_a_client_has_seen_when_it_leaves_is_incomplete(
    checkpoint: Checkpoint, text: str, kinds: list[str]
) -> None:
    played = Played(checkpoint, text, one_each(), is_left=True)
    (ending,) = played.endings
    response = json.loads(ending.body)
    assert ending.body == played.body
    assert ending.status == response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": None}
    assert response["error"] is None
    assert [item["type"] for item in response["output"]] == kinds
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    ids = {event["item"]["id"] for event in played.events if "item" in event}
    assert ids == {item["id"] for item in response["output"]}


def test_reasoning_is_sealed_or_hidden_on_request(
    checkpoint: Checkpoint,
) -> None:
    text = "<think>why</think>So."
    sealed = Played(checkpoint, text, one_each(), include=["reasoning.encrypted_content"])
    assert sealed.final["output"][0]["encrypted_content"] == "sealed 3"
    assert Played(checkpoint, text, one_each()).final["output"][0]["encrypted_content"] is None
    hidden = Played(checkpoint, text, one_each(), include_reasoning=False)
    check(hidden)
    assert hidden.kinds == ["message"]
    assert hidden.final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


@pytest.mark.parametrize("asked", [{"summary": "auto"}, {"generate_summary": "concise"}])
def test_a_requested_summary_is_the_reasoning_itself_and_is_sent_once(
    checkpoint: Checkpoint, asked: dict[str, str]
) -> None:
    played = Played(checkpoint, "<think>why not</think>So.", one_each(), reasoning=asked)
    check(played)
    reasoning, message = played.final["output"]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "why not"}]
    assert (reasoning["content"], message["content"][0]["text"]) == ([], "So.")
    assert "ignored" not in played.final
    events = [event for event in played.events if event.get("item_id") == reasoning["id"]]
    assert [kind for kind, _ in itertools.groupby(event["type"] for event in events)] == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    assert {(event["output_index"], event["summary_index"]) for event in events} == {(0, 0)}
    assert (events[-2]["text"], events[-1]["part"]) == ("why not", reasoning["summary"][0])
    assert "status" not in events[-1]
    state = accumulated(played).output[0]
    assert state.type == "reasoning"
    assert [part.text for part in state.summary] == ["why not"]


def test_a_summary_that_was_cut_is_incomplete(checkpoint: Checkpoint) -> None:
    asked = {"summary": "detailed"}
    cut = FinishReason.LENGTH
    played = Played(checkpoint, "<think>why", one_each(), reason=cut, reasoning=asked)
    check(played)
    ended = [e for e in played.events if e["type"] == "response.reasoning_summary_part.done"]
    assert [event["status"] for event in ended] == ["incomplete"]


def test_hosted_tools_are_reported_as_not_run(checkpoint: Checkpoint) -> None:
    tools = [*TOOLS, {"type": "web_search", "external_web_access": False}, {"type": "telepathy"}]
    played = Played(checkpoint, "Hi", one_each(), tools=tools, text={"verbosity": "low"})
    assert played.final["ignored"] == [
        "text.verbosity",
        "tools[3].web_search",
        "tools[4].telepathy",
    ]


@pytest.mark.parametrize("frame", [1, 100])
def test_logprobs_spell_the_text_that_they_come_with(checkpoint: Checkpoint, frame: int) -> None:
    text = f"<think>\nLet me see.\n</think>\n\nWell, then.\n\n{CALL}\n\nThat was it."
    included = ["message.output_text.logprobs"]
    played = Played(checkpoint, text, itertools.repeat(frame), include=included)
    texts = []
    for item in played.final["output"]:
        for part in item["content"] if item["type"] == "message" else []:
            assert "".join(entry["token"] for entry in part["logprobs"]) == part["text"]
            texts.append(part["text"])
    assert texts == ["Well, then.", "That was it."]
    for event in played.events:
        if event["type"] == "response.output_text.delta":
            assert "".join(entry["token"] for entry in event["logprobs"]) == event["delta"]
