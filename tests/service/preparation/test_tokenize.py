"""Texts to token ids and back, as clients request them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.preparation import tokenize
from tests.service.preparation.bodies import USER
from tests.service.preparation.prepared import prepared


def answer(step: str, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(prepared(step, body).body)
    return found


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_text_comes_back_from_its_tokens(text: str) -> None:
    there = answer("tokenize", prompt=text)
    assert there["count"] == len(there["tokens"])
    assert answer("detokenize", tokens=there["tokens"])["prompt"] == text


def test_the_tokens_spelled_out_are_the_text() -> None:
    there = answer("tokenize", prompt="Hello, you there.", return_token_strs=True)
    assert "".join(there["token_strs"]) == "Hello, you there."
    assert len(there["token_strs"]) == there["count"]
    assert there["max_model_len"] == 4096
    assert answer("tokenize", prompt="Hi")["token_strs"] is None


def test_messages_are_those_that_a_chat_would_be_answered_from() -> None:
    there = answer("tokenize", messages=USER)
    [prompt] = prepared("chat", {"messages": USER}).generation.prompts
    assert there["tokens"] == prompt
    open_ended = answer("tokenize", messages=USER, add_generation_prompt=False)
    assert prompt[: open_ended["count"]] == open_ended["tokens"]
    assert open_ended["count"] < len(prompt)


def test_tokens_whose_text_would_be_too_large_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = answer("tokenize", prompt="Hello, you there.")["tokens"]
    size = len("Hello, you there.")
    monkeypatch.setattr(tokenize, "_MAX_DETOKENIZED_BYTES", size)
    assert answer("detokenize", tokens=tokens)["prompt"] == "Hello, you there."
    monkeypatch.setattr(tokenize, "_MAX_DETOKENIZED_BYTES", size - 1)
    with pytest.raises(InvalidRequestError, match=f"{size} bytes") as refused:
        answer("detokenize", tokens=tokens)
    assert refused.value.param == "tokens"


def test_an_id_that_is_no_token_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="token id 1500"):
        answer("detokenize", tokens=[1, 1500])
