"""Copied code, run unchanged against a running server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.apis.ask import Message
from dashboard.apis.table import BY_NAME
from dashboard.client import Request
from dashboard.codes import as_curl, as_javascript, as_python
from dashboard.conversation import Choices, Conversation
from tests.e2e.quire_server import QuireServer

KEY = "sk-copied"
TRICKY = "It's $5, isn't it? `x` \"y\" \\ {z} \U0001f680"


@pytest.fixture(scope="module")
def guarded() -> Iterator[QuireServer]:
    with QuireServer("simulated:instant", "--api-key", KEY) as server:
        yield server


def asked(api: str) -> Request:
    choices = Choices("simulated:instant", BY_NAME[api], temperature=0.0, max_tokens=8, stop=("'",))
    return Conversation().request((Message("user", TRICKY),), choices)


def run(*command: str, key: str = KEY) -> str:
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "QUIRE_API_KEY": key},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("api", "end"),
    [
        ("Chat completions", "data: [DONE]"),
        ("Completions", "data: [DONE]"),
        ("Messages", "message_stop"),
        ("Responses", "response.incomplete"),
    ],
)
def test_code_in_each_language_gets_the_whole_answer(
    guarded: QuireServer, tmp_path: Path, api: str, end: str
) -> None:
    request = asked(api)
    told = [
        run("bash", "-c", as_curl(guarded.url, request, with_key=True)),
        run(sys.executable, "-c", as_python(guarded.url, request, with_key=True)),
    ]
    if node := shutil.which("node"):
        script = tmp_path / "ask.mjs"
        script.write_text(as_javascript(guarded.url, request, with_key=True))
        told.append(run(node, str(script)))
    for output in told:
        assert end in output
        assert "output_tokens" in output or "completion_tokens" in output


def test_without_the_key_the_server_refuses(guarded: QuireServer) -> None:
    command = as_curl(guarded.url, asked("Chat completions"), with_key=True)
    assert "invalid_api_key" in run("bash", "-c", command, key="wrong")
