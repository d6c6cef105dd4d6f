"""Anthropic's messages: counted as they are generated from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service.errors import InvalidRequestError
from tests.service.preparation.bodies import SCHEMA, USER
from tests.service.preparation.prepared import prepared

BODY: dict[str, Any] = {"model": "pocket", "messages": USER}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "Be brief."},
        {"tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}] * 3}]},
    ],
    ids=["plain", "system", "tools", "blocks"],
)
def test_a_prompt_has_as_many_tokens_as_its_count_says(fields: dict[str, Any]) -> None:
    [prompt] = prepared("messages", {**BODY, "max_tokens": 5, **fields}).generation.prompts
    answer = prepared("count_tokens", {**BODY, **fields}).body
    assert msgspec.json.decode(answer) == {"input_tokens": len(prompt)}


def test_a_client_speaks_of_caching_with_the_field_not_with_the_word() -> None:
    marked = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
    said = 'What does "cache_control" mean?'
    for system, speaks in ((marked, True), (said, False)):
        body = {**BODY, "max_tokens": 5, "system": system}
        assert prepared("messages", body).speaks_of_caching is speaks


def test_a_limit_is_asked_for_only_where_tokens_are_generated() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        prepared("messages", BODY)
    assert refused.value.param == "max_tokens"
    assert prepared("count_tokens", BODY).body
