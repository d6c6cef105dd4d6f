"""The command line is the request, and never holds the key."""

from __future__ import annotations

import json
import shlex

from dashboard.conversation import Choices, Conversation
from dashboard.curl import as_curl

CHOICES = Choices("m", "", 0.7, 0.95, 64, seed=None, thinking=None)


def test_the_curl_line_is_the_same_request() -> None:
    request = Conversation().request("It's $5, isn't it? 🚀", CHOICES)
    words = shlex.split(as_curl("http://h:1", request, with_key=False))
    assert words[:3] == ["curl", "-N", "http://h:1/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == request.body()
    assert "Authorization" not in " ".join(words)


def test_the_key_is_left_to_the_shell() -> None:
    request = Conversation().request("Hi", CHOICES)
    command = as_curl("http://h:1", request, with_key=True)
    assert '-H "Authorization: Bearer $QUIRE_API_KEY"' in command  # which a shell fills in


def test_a_model_or_address_cannot_end_the_command() -> None:
    choices = Choices("m'; echo $HOME `id`", "", 0.7, 0.95, 64, seed=7, thinking=False)
    request = Conversation().request('it\'s\n"quoted" \\ $(id)', choices)
    words = shlex.split(as_curl("http://h:1/;rm -r", request, with_key=False))
    assert words[2] == "http://h:1/;rm -r/v1/chat/completions"
    assert json.loads(words[-1]) == request.body()
    assert len([word for word in words if word != "\n"]) == 7
