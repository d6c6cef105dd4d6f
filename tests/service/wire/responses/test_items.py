"""Output items and their stream events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
)
from service.wire.responses.items import EventWriter, ItemBuilder
from service.wire.responses.tools import Toolbox

CHOICE: Any = None  # only logprobs read it


def events_of(sent: bytes) -> list[dict[str, Any]]:
    found = []
    for block in sent.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def built(*events: Event, **fields: Any) -> ItemBuilder:
    builder = ItemBuilder("k", Toolbox((), []), **fields)
    for event in events:
        builder.feed(CHOICE, event)
    return builder


def items(builder: ItemBuilder) -> list[dict[str, Any]]:
    return [json.loads(item) for item in builder.current()]


def test_events_are_numbered_without_gaps_and_taken_once() -> None:
    writer = EventWriter()
    writer.write("a", b'"x":1')
    writer.write_delta(b'event: b\ndata: {"type":"b","delta":', 'ü"\n', b",")
    first = events_of(writer.take())
    assert [(event["type"], event["sequence_number"]) for event in first] == [("a", 0), ("b", 1)]
    assert first[1]["delta"] == 'ü"\n'
    assert writer.take() == b""
    writer.write("a", b'"x":2')
    writer.take()
    writer.take_back()
    writer.write("a", b'"x":3')
    assert events_of(writer.take()) == [{"type": "a", "x": 3, "sequence_number": 2}]


def test_an_item_is_in_progress_until_its_end() -> None:
    builder = built(TextDelta("He", 0, 1))
    assert [(item["status"], item["content"][0]["text"]) for item in items(builder)] == [
        ("in_progress", "He")
    ]
    assert builder.done == []
    builder.feed(CHOICE, TextDelta("y", 1, 2))
    builder.feed(CHOICE, Finished("stop", None, 2))
    assert [(item["status"], item["content"][0]["text"]) for item in items(builder)] == [
        ("completed", "Hey")
    ]


def test_the_last_event_of_an_item_holds_the_item_of_the_answer() -> None:
    builder = built(
        ReasoningDelta("why", 0, 1),
        TextDelta(" \n", 1, 2),
        TextDelta("So", 2, 3),
        Finished("stop", None, 3),
        seal=lambda text: f"sealed:{text}",
    )
    sent = events_of(builder.writer.take())
    done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert done == items(builder)
    reasoning, message = done
    assert reasoning["encrypted_content"] == "sealed:why"
    assert message["content"][0]["text"] == "So"
    assert [reasoning["id"], message["id"]] == ["rs_k_0", "msg_k_1"]


def test_reasoning_that_is_not_shown_makes_no_item() -> None:
    builder = built(ReasoningDelta("why", 0, 1), Finished("stop", None, 1), reasoning=False)
    assert items(builder) == []


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_call_that_did_not_end_is_cut(reason: str) -> None:
    builder = built(
        ToolCallBegin(0, "call_1", "f", 0, 1),
        ToolArgumentsDelta(0, '{"a"', 1, 2),
        Finished(reason, None, 2),
    )
    (call,) = items(builder)
    assert (call["status"], call["arguments"], call["call_id"]) == ("incomplete", '{"a"', "call_1")
    assert builder.cut


def test_an_abandoned_item_is_incomplete() -> None:
    builder = built(TextDelta("He", 0, 1))
    builder.abandon()
    assert [item["status"] for item in items(builder)] == ["incomplete"]
    assert not builder.cut
