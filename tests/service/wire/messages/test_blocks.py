"""Anthropic's content blocks, as clients send them back: what the model is shown of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.decode import Ignored
from service.wire.messages.request import decode_count, decode_messages, messages_conversation
from service.wire.messages.signatures import Signer

USER = {"role": "user", "content": "Hi"}
TEXT = {"type": "text", "text": "ok"}


def shown(*messages: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the messages for the template, and what was left out."""
    body = {"model": "m", "max_tokens": 20, "messages": [*messages]}
    ignored = Ignored()
    request = decode_messages(json.dumps(body).encode(), ignored)
    return messages_conversation(request, Signer("a secret")).messages, ignored.names


def test_what_hosted_tools_did_is_left_out_and_reported() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    hits = [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "…"}]
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": hits}
    call = {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "n", "input": {}}
    result = {"type": "mcp_tool_result", "tool_use_id": "m", "content": [TEXT], "is_error": False}
    turn = {"role": "assistant", "content": [search, found, call, result, TEXT]}
    upload = {"type": "container_upload", "file_id": "f"}
    messages, left_out = shown(USER, turn, {"role": "user", "content": [TEXT, upload]})
    assert messages == [
        USER,
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "ok"},
    ]
    assert left_out == [
        "messages[1].content[0].server_tool_use",
        "messages[1].content[1].web_search_tool_result",
        "messages[1].content[2].mcp_tool_use",
        "messages[1].content[3].mcp_tool_result",
        "messages[2].content[1].container_upload",
    ]


def test_search_results_and_found_tools_are_shown_as_text() -> None:
    passage = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "Tides",
        "content": [{"type": "text", "text": "The moon."}, {"type": "text", "text": "The sun."}],
        "citations": {"enabled": True},
    }
    tool = {"type": "tool_reference", "tool_name": "get_tides"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [passage, tool]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    messages, left_out = shown(
        USER,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, passage, TEXT]},
    )
    text = "Tides (https://a.example)\nThe moon.\nThe sun."
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "t", "content": f"{text}\nget_tides", "name": "f"},
        {"role": "user", "content": f"{text}\nok"},
    ]
    assert left_out == [
        "messages[2].content[0].content[0].citations",
        "messages[2].content[1].citations",
    ]


def test_a_browsers_state_in_a_result_is_replaced_by_a_sentence_and_reported() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    tab = {"tab_id": "1", "url": "https://a.example", "title": "A", "active": True}
    state = {"type": "browser_state", "tabs": [tab], "state_changes": None}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [TEXT, state]}
    messages, left_out = shown(
        USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
    )
    assert messages[2]["content"] == "ok\n[browser_state: this server reads text only]"
    assert left_out == ["messages[2].content[0].content[1].browser_state"]


def test_a_summary_takes_the_place_of_all_before_it() -> None:
    old = {"type": "compaction", "content": "Older."}
    new = {"type": "compaction", "content": "They met.", "signature": "s"}
    before, after = {"type": "text", "text": "before"}, {"type": "text", "text": "after"}
    turn = {"role": "assistant", "content": [before, new, after]}
    messages, _ = shown(USER, {"role": "assistant", "content": [old]}, USER, turn, USER)
    assert messages == [
        {"role": "user", "content": "They met."},
        {"role": "assistant", "content": "after"},
        USER,
    ]
    messages, _ = shown(USER, {"role": "assistant", "content": [before, new]}, USER)
    assert messages == [{"role": "user", "content": "They met.\n\nHi"}]


def test_the_turn_after_a_final_summary_is_the_assistants() -> None:
    turn = {"role": "assistant", "content": [{"type": "compaction", "content": "They met."}]}
    body = {"model": "m", "max_tokens": 20, "messages": [USER, turn]}
    request = decode_messages(json.dumps(body).encode())
    made = messages_conversation(request, Signer("a secret"))
    assert made.messages == [{"role": "user", "content": "They met."}]
    assert made.add_generation_prompt
    assert not made.continue_final_message


@pytest.mark.parametrize("content", [None, ""])
def test_a_summary_that_cannot_be_read_is_reported(content: str | None) -> None:
    sealed = {"type": "compaction", "content": content, "encrypted_content": "…"}
    messages, left_out = shown(USER, {"role": "assistant", "content": [sealed, TEXT]}, USER)
    assert messages == [USER, {"role": "assistant", "content": "ok"}, USER]
    assert left_out == ["messages[1].content[0].compaction"]


def test_a_request_for_a_summary_is_refused() -> None:
    body = {"model": "m", "max_tokens": 20, "messages": [USER], "compaction": {"type": "summarize"}}
    with pytest.raises(InvalidRequestError, match="'compaction' is not supported"):
        decode_messages(json.dumps(body).encode())
    decode_count(json.dumps(body).encode())


def test_documents_of_text_are_read_with_their_titles() -> None:
    source = {"type": "content", "content": [TEXT, TEXT]}
    document = {"type": "document", "title": "Tides", "context": "1900", "source": source}
    plain = {"type": "document", "source": {"type": "content", "content": "plain"}}
    messages, _ = shown({"role": "user", "content": [document, plain]})
    assert messages == [{"role": "user", "content": "Tides\n1900\nok\nok\nplain"}]
    image = {"type": "content", "content": [{"type": "image", "source": {}}]}
    with pytest.raises(InvalidRequestError, match="takes text only"):
        shown({"role": "user", "content": [{"type": "document", "source": image}]})


def test_fields_of_hosted_blocks_are_not_reported_with_unknown_ones() -> None:
    call = {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "n", "input": {}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "tool_name": "f"}}
    body = {
        "model": "m",
        "max_tokens": 20,
        "messages": [
            USER,
            {"role": "assistant", "content": [call]},
            {"role": "system", "content": [removal]},
            USER,
        ],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "mcp_servers": [],
    }
    ignored = Ignored()
    decode_messages(json.dumps(body).encode(), ignored)
    assert ignored.names == [
        "mcp_servers",
        "tools.web_search",
        "messages[1].content[0].mcp_tool_use",
        "messages[2].content[0].tool_removal",
    ]


def test_a_request_without_anything_to_read_is_refused() -> None:
    upload = {"type": "container_upload", "file_id": "f"}
    with pytest.raises(InvalidRequestError, match="nothing that this server can read"):
        shown({"role": "user", "content": [upload]})


def test_other_blocks_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="hologram") as refused:
        shown({"role": "user", "content": [{"type": "hologram"}]})
    assert refused.value.param == "messages[0].content[0].type"
