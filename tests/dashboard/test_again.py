"""The command sends what was recorded: a shell splits it as it would run it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from dashboard.again import PROMPT, curl_like
from observability.admin_api import KeptRequest
from observability.outcomes import ROUTES

URL = "http://127.0.0.1:8000"


def recorded(route: str, **fields: Any) -> KeptRequest:
    return KeptRequest(request_id="r", received=0.0, route=route, model='it\'s "m"', **fields)


def sent(request: KeptRequest) -> tuple[list[str], dict[str, Any]]:
    command = curl_like(URL, request)
    assert command is not None
    words = shlex.split(command)
    return words, json.loads(words[words.index("-d") + 1])


def test_settings_are_those_of_the_request() -> None:
    words, body = sent(
        recorded("chat_completions", max_tokens=9, temperature=0.0, choices=2, stream=True, key="a")
    )
    assert words[2] == f"{URL}/v1/chat/completions"
    assert body == {
        "model": 'it\'s "m"',
        "messages": [{"role": "user", "content": PROMPT}],
        "max_completion_tokens": 9,
        "temperature": 0.0,
        "n": 2,
        "stream": True,
    }
    assert "Authorization: Bearer $QUIRE_API_KEY" in words


def test_what_the_request_did_not_set_is_left_out() -> None:
    words, body = sent(recorded("embeddings", max_tokens=9))
    assert body == {"model": 'it\'s "m"', "input": PROMPT}
    assert "Authorization" not in " ".join(words)


@pytest.mark.parametrize("route", ["models", "grpc_chat", "none"])
def test_other_routes_have_no_command(route: str) -> None:
    assert route in ROUTES
    assert curl_like(URL, recorded(route)) is None
