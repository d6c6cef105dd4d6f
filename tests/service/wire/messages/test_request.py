"""Anthropic's request: what a template sees of its blocks, and what is refused by its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.conversation import Conversation
from service.errors import InvalidRequestError, NoThreadsError
from service.wire.decode import Ignored
from service.wire.messages.request import (
    MessagesRequest,
    decode_count,
    decode_messages,
    messages_conversation,
    messages_task,
)
from service.wire.messages.signatures import Signer

USER = {"role": "user", "content": "Hi"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
SIGNER = Signer("a secret")
ENDS_WITH_A_CALL = (
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
)


def decode(ignored: Ignored | None = None, **fields: Any) -> MessagesRequest:
    body = {"model": "m", "max_tokens": 2000, "messages": [USER], **fields}
    return decode_messages(json.dumps(body).encode(), ignored)


def conversation(*messages: dict[str, Any], **fields: Any) -> Conversation:
    return messages_conversation(decode(messages=messages or [USER], **fields), SIGNER)


def said(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_a_tool_loop_becomes_the_messages_that_templates_know() -> None:
    thought = {"type": "thinking", "thinking": "why", "signature": SIGNER.sign("why")}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "bad", "is_error": True}
    text = {"type": "text", "text": "a"}
    made = conversation(
        USER, said(thought, text, call, role="assistant"), said(result, text, text), system="Brief."
    )
    assert made.messages == [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "why",
            "tool_calls": [
                {"id": "t", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
            ],
        },
        {"role": "tool", "tool_call_id": "t", "content": "Error: bad", "name": "f"},
        {"role": "user", "content": "a\na"},
    ]
    assert made.add_generation_prompt
    assert not made.continue_final_message


def test_an_assistants_turn_at_the_end_is_continued() -> None:
    made = conversation(USER, {"role": "assistant", "content": "So"})
    assert made.continue_final_message
    assert not made.add_generation_prompt


def test_altered_sealed_thinking_is_refused_naming_its_position() -> None:
    block = {"type": "thinking", "thinking": "other", "signature": SIGNER.sign("why")}
    with pytest.raises(InvalidRequestError) as caught:
        conversation(USER, said(block, role="assistant"), USER)
    assert caught.value.param == "messages.1.content.0"


def test_a_choice_may_allow_one_call_only() -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    assert not conversation(tools=[TOOL], tool_choice=choice).parallel_tool_calls
    made = conversation(tools=[TOOL], tool_choice={"type": "any"})
    assert made.parallel_tool_calls
    assert made.tool_choice == "required"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        (
            {"max_tokens": 0, "thinking": {"type": "enabled", "budget_tokens": 1024}},
            "max_tokens",
        ),
        ({"messages": []}, "messages"),
        ({"tools": [TOOL, TOOL]}, "tools.1.name"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "max_tokens"),
        (
            {"messages": [said({"type": "tool_use", "id": "t", "name": "f", "input": {}})]},
            "messages.0.content.0",
        ),
        ({"messages": [said({"type": "image", "source": {}})]}, "messages.0.content.0.type"),
        ({"messages": [USER, said(*ENDS_WITH_A_CALL, role="assistant")]}, "messages.1.content.1"),
    ],
)
def test_an_unsound_request_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(**fields)
    assert caught.value.param == param


def test_max_tokens_0_computes_only_the_prompt() -> None:
    made = decode(max_tokens=0)
    assert made.only_prompt
    assert messages_task(made, SIGNER).token_limit == 1
    assert not decode(max_tokens=1).only_prompt


def test_thinking_between_tools_is_thinking_and_reported() -> None:
    ignored = Ignored()
    made = decode(ignored, thinking={"type": "between_tools"})
    assert messages_conversation(made, SIGNER).thinking
    assert ignored.names == ["thinking.type"]


@pytest.mark.parametrize(
    ("enabled", "named"), [(True, ["messages[0].content[0].citations"]), (False, [])]
)
def test_citations_that_are_wanted_are_reported(enabled: bool, named: list[str]) -> None:
    ignored = Ignored()
    source = {"type": "text", "media_type": "text/plain", "data": "It rains."}
    document = {"type": "document", "source": source, "citations": {"enabled": enabled}}
    decode(ignored, messages=[{"role": "user", "content": [document]}])
    assert ignored.names == named


def test_edits_of_the_conversation_are_reported_unless_they_change_nothing() -> None:
    ignored = Ignored()
    edits = [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "clear_thinking_20251015"},
        {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}},
        "what",
    ]
    decode(ignored, context_management={"edits": edits})
    assert ignored.names == [
        "context_management.edits[1].clear_thinking_20251015",
        "context_management.edits[2].clear_tool_uses_20250919",
        "context_management.edits[3]",
    ]
    decode(Ignored(refuse=True), context_management={"edits": "none"})


def test_a_thread_is_refused_in_a_way_that_clients_act_on() -> None:
    with pytest.raises(NoThreadsError):
        decode(thread={"id": "x"})


def test_counting_needs_no_limit_and_a_task_has_it() -> None:
    body = json.dumps({"model": "m", "messages": [USER]}).encode()
    assert decode_count(body).messages[0].content == "Hi"
    task = messages_task(decode(stop_sequences=["x"], temperature=0.5), SIGNER)
    assert task.token_limit == 2000
    assert task.sampling.stop == ["x"]
    assert task.sampling.temperature == 0.5
