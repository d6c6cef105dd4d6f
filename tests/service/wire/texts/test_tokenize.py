"""Requests to count and to join tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.decode import Ignored
from service.wire.texts.tokenize import decode_detokenize, decode_tokenize

USER = {"role": "user", "content": "Hi"}


def test_a_prompt_and_a_conversation_are_both_taken() -> None:
    assert decode_tokenize(b'{"prompt": ""}').prompt == ""
    request = decode_tokenize(json.dumps({"messages": [USER]}).encode())
    assert request.messages is not None
    assert request.messages[0].content == "Hi"
    assert request.add_generation_prompt
    # The default differs between the two and is distinguished from an explicit value.
    assert request.add_special_tokens is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [USER]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [USER, {"role": "tool", "content": "a"}]}, "messages[1].tool_call_id"),
    ],
)
def test_an_unsound_request_names_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_tokenize(json.dumps(body).encode())
    assert caught.value.param == param


def test_keys_of_a_message_besides_its_text_are_reported() -> None:
    ignored = Ignored()
    part = {"type": "text", "text": "a", "x": 1}
    body = {"messages": [{"role": "user", "content": [part]}]}
    decode_tokenize(json.dumps(body).encode(), ignored)
    assert ignored.names == ["messages[0].content[0].x"]


@pytest.mark.parametrize("tokens", [["a"], [-1], [2**31], [1.5], None])
def test_only_ids_are_tokens(tokens: Any) -> None:
    assert decode_detokenize(b'{"tokens": [0, 5]}').tokens == [0, 5]
    with pytest.raises(InvalidRequestError) as caught:
        decode_detokenize(json.dumps({"tokens": tokens}).encode())
    assert str(caught.value.param).startswith("tokens")
