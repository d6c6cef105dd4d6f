"""The code is the request, and never holds the key. What it does when run is tested in
test_codes_live.py."""

from __future__ import annotations

import ast
import json
import shlex

import pytest

from dashboard.apis.ask import Message
from dashboard.apis.sendable import MOST_LEVELS
from dashboard.apis.table import APIS, BY_NAME
from dashboard.client import Request
from dashboard.codes import LANGUAGES, as_curl, as_python
from dashboard.conversation import Choices, Conversation
from dashboard.play import inputs

CHOICES = Choices("m", temperature=0.7, max_tokens=64)


def asked(question: str, choices: Choices = CHOICES) -> Request:
    return Conversation().request((Message("user", question),), choices)


def test_the_curl_line_is_the_same_request() -> None:
    request = asked("It's $5, isn't it? 🚀")
    words = shlex.split(as_curl("http://h:1", request, with_key=False))
    assert words[:3] == ["curl", "-N", "http://h:1/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == request.body()
    assert "Authorization" not in " ".join(words)


def test_the_key_is_left_to_the_shell() -> None:
    request = asked("Hi")
    command = as_curl("http://h:1", request, with_key=True)
    assert '-H "Authorization: Bearer $QUIRE_API_KEY"' in command  # which a shell fills in


def test_a_model_or_address_cannot_end_the_command() -> None:
    choices = Choices("m'; echo $HOME `id`", seed=7, thinking=False)
    request = asked('it\'s\n"quoted" \\ $(id)', choices)
    words = shlex.split(as_curl("http://h:1/;rm -r", request, with_key=False))
    assert words[2] == "http://h:1/;rm -r/v1/chat/completions"
    assert json.loads(words[-1]) == request.body()
    assert len([word for word in words if word != "\n"]) == 7


def test_the_python_code_has_the_same_body() -> None:
    request = asked('it\'s "quoted" \\ \n {braces} 🚀')
    module = ast.parse(as_python("http://h:1", request, with_key=False))
    bodies = [
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "body"
    ]
    assert bodies == [request.body()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_key_is_only_named(language: str) -> None:
    write = LANGUAGES[language][1]
    assert "QUIRE_API_KEY" in write("http://h:1", asked("Hi"), True)
    assert "QUIRE_API_KEY" not in write("http://h:1", asked("Hi"), False)


@pytest.mark.parametrize("api", [api.name for api in APIS if "schema" in api.uses])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_deepest_schema_that_is_taken_can_be_written(language: str, api: str) -> None:
    schema = inputs.schema('{"a":' * MOST_LEVELS + "1" + "}" * MOST_LEVELS)
    request = asked("Hi", Choices("m", BY_NAME[api], schema=schema))

    def deep_in_calls(left: int) -> str:
        """As deep as where Streamlit runs a page, and more."""
        if left:
            return deep_in_calls(left - 1)
        return LANGUAGES[language][1]("http://h:1", request, False)

    assert deep_in_calls(200).count('"a"' if language != "Python" else "'a'") == MOST_LEVELS
