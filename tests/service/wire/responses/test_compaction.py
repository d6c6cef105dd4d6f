"""A conversation that is replaced by its summary."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.output.events import Event, Finished, ReasoningDelta, TextDelta
from service.wire.responses.compaction import (
    CompactionItem,
    asking_for_summary,
    summarizing,
    summary_message,
    user_messages,
    without_trigger,
)
from service.wire.responses.request import ResponsesRequest, decode_responses

USER = {"type": "message", "role": "user", "content": "Hi"}
TRIGGER = {"type": "compaction_trigger"}
CHOICE: Any = None  # which choice it was does not matter to an item


def request(**fields: Any) -> ResponsesRequest:
    return decode_responses(json.dumps({"input": "x", **fields}).encode())


def test_only_a_trigger_at_the_end_asks_for_compaction() -> None:
    assert without_trigger([USER, TRIGGER]) == ([USER], True)
    assert without_trigger([TRIGGER, USER]) == ([TRIGGER, USER], False)
    assert without_trigger([]) == ([], False)


def test_a_user_message_after_all_items_requests_the_summary() -> None:
    items = [USER]
    *before, asked = asking_for_summary(items)
    assert before == items == [USER]
    assert asked["role"] == "user"
    assert "summary" in asked["content"]
    assert summary_message("all of it")["content"].endswith("all of it")


@pytest.mark.parametrize(("context", "limit"), [(8, 16), (4000, 1000), (1_000_000, 4096)])
def test_a_summary_is_plain_text_that_fits_the_context(context: int, limit: int) -> None:
    tool = {"type": "function", "name": "f"}
    form = {"format": {"type": "json_object"}}
    changed = summarizing(request(tools=[tool], tool_choice="required", text=form), context)
    assert changed.tool_choice == "none"
    assert changed.text is None
    assert changed.truncation == "auto"
    assert changed.max_output_tokens == limit
    assert summarizing(request(max_output_tokens=7), context).max_output_tokens == 7


@pytest.mark.parametrize(
    ("events", "summary"),
    [
        ([ReasoningDelta("why", 0, 1), TextDelta(" a", 1, 2), TextDelta("b\n", 2, 3)], "ab"),
        ([ReasoningDelta(" why ", 0, 1), TextDelta(" ", 1, 2)], "why"),
        ([], ""),
    ],
    ids=["text", "thoughts only", "nothing"],
)
def test_what_the_model_wrote_becomes_one_sealed_item(events: list[Event], summary: str) -> None:
    item = CompactionItem("k", lambda text: f"sealed:{text}")
    for event in events:
        item.feed(CHOICE, event)
    assert item.current() == []
    assert item.writer.take() == b""
    item.feed(CHOICE, Finished("stop", None, 3))
    (made,) = map(json.loads, item.current())
    assert made == {"id": "cmp_k_0", "type": "compaction", "encrypted_content": f"sealed:{summary}"}
    sent = [
        json.loads(block.split("\ndata: ")[1])
        for block in item.writer.take().decode().split("\n\n")[:-1]
    ]
    assert [event["type"] for event in sent] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    assert [event["sequence_number"] for event in sent] == [0, 1]
    assert all(event["item"] == made for event in sent)


def test_half_a_summary_is_not_a_summary() -> None:
    item = CompactionItem("k", str)
    item.feed(CHOICE, TextDelta("half", 0, 1))
    item.abandon()
    assert item.current() == []


def test_only_a_users_messages_are_kept() -> None:
    plain = {"role": "user", "content": "x"}
    others = [{"role": "assistant", "content": "y"}, {"type": "other", "role": "user"}]
    assert user_messages([USER, *others, plain]) == [USER, plain]
