"""Responses: items in, events out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard.answer import Answer, BrokenStreamError, Token
from dashboard.apis import responses
from dashboard.apis.ask import Ask, Call, Message


def answer(*events: dict[str, Any]) -> Answer:
    built = Answer(sent=0.0)
    for event in events:
        responses.read(built, json.dumps(event))
    return built


def test_calls_and_results_are_items() -> None:
    told = (
        Message("user", "Look."),
        Message("assistant", "", (Call("c1", "look", "{}"),)),
        Message("tool", "blue", call_id="c1"),
    )
    body = responses.body(Ask("m", told))
    assert body["input"][1:] == [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
    ]
    assert body["store"] is False


def test_events_are_read_in_order() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look"}
    likely = {"token": "Yes", "logprob": -0.5, "top_logprobs": [{"token": "No", "logprob": -1}]}
    usage = {"input_tokens": 7, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}
    built = answer(
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.reasoning_text.delta", "delta": "Hm."},
        {"type": "response.output_text.delta", "delta": "Yes", "logprobs": [likely]},
        {"type": "response.output_item.added", "item": call},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.completed", "response": {"status": "completed", "usage": usage}},
    )
    assert (built.reasoning, built.text, built.finish_reason) == ("Hm.", "Yes", "completed")
    assert [(c.id, c.name, c.arguments) for c in built.tool_calls] == [("c1", "look", "{}")]
    assert built.tokens == [Token("Yes", -0.5, (("No", -1),))]
    assert built.usage is not None
    assert built.usage.cached_tokens == 4


def test_why_it_is_incomplete_is_told() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    built = answer({"type": "response.incomplete", "response": cut})
    assert built.finish_reason == "max_output_tokens"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "message": "too busy"},
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"message": "too busy"}},
        },
    ],
)
def test_an_error_is_told(event: dict[str, Any]) -> None:
    with pytest.raises(BrokenStreamError, match="too busy"):
        answer(event)
