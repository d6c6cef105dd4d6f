"""Messages: blocks in, blocks out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard.answer import Answer, BrokenStreamError
from dashboard.apis import messages
from dashboard.apis.ask import Ask, Call, Message


def answer(*events: dict[str, Any]) -> Answer:
    built = Answer(sent=0.0)
    for event in events:
        messages.read(built, json.dumps(event))
    return built


def test_calls_and_results_are_blocks() -> None:
    told = (
        Message("user", "Look."),
        Message("assistant", "I look.", (Call("c1", "look", '{"at": "sky"}'),)),
        Message("tool", "blue", call_id="c1"),
    )
    sent = messages.body(Ask("m", told))["messages"]
    assert sent[1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "blue"}
    assert sent[2] == {"role": "user", "content": [result]}


@pytest.mark.parametrize(
    ("wanted", "most", "kind"),
    [(False, 64, "disabled"), (True, 64, "adaptive"), (True, 4096, "enabled")],
)
def test_thinking_is_asked_for_as_the_api_allows(wanted: bool, most: int, kind: str) -> None:
    body = messages.body(Ask("m", (Message("user", "Hi"),), max_tokens=most, thinking=wanted))
    assert body["thinking"]["type"] == kind


def test_blocks_are_read_in_order() -> None:
    built = answer(
        {
            "type": "message_start",
            "message": {"usage": {"input_tokens": 4, "cache_read_input_tokens": 16}},
        },
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Yes"}},
        {
            "type": "content_block_start",
            "content_block": {"type": "tool_use", "id": "c", "name": "f"},
        },
        {"type": "content_block_delta", "delta": {"partial_json": '{"a"'}},
        {"type": "content_block_delta", "delta": {"partial_json": ":1}"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9},
            "timings": {"queue_ms": 0.5},
        },
    )
    assert (built.reasoning, built.text, built.finish_reason) == ("Hm.", "Yes", "tool_use")
    assert [(c.id, c.name, c.arguments) for c in built.tool_calls] == [("c", "f", '{"a":1}')]
    usage = built.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (20, 16, 9)
    assert built.timings is not None
    assert built.timings.queue_ms == 0.5


def test_an_error_is_told() -> None:
    with pytest.raises(BrokenStreamError, match="too busy"):
        answer({"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}})
