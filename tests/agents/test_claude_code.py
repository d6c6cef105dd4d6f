"""Claude Code, over the Messages API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.agent import program, run_agent
from tests.agents.scripted import TASK, call, scripted_server

pytestmark = pytest.mark.agents


def test_it_writes_runs_edits_and_reads(tmp_path: Path) -> None:
    claude = program("claude")
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    file = str(work / "hello.py")
    replies = [
        "<think>\nA file is needed.\n</think>\n\nI write it first.\n"
        + call("Write", file_path=file, content="print('helo')\n"),
        call("Bash", command="python3 hello.py", description="Run it"),
        call("Edit", file_path=file, old_string="helo", new_string="hello"),
        call("Bash", command="python3 hello.py > out.txt", description="Keep its output")
        + "\n"
        + call("Read", file_path=file),
        "never: two calls were made at once",
        "Done: it prints hello.",
    ]
    with scripted_server(tmp_path, replies) as server:
        done = run_agent(
            [
                *(str(claude), "-p", TASK, "--output-format", "stream-json", "--verbose"),
                *("--allowedTools", "Bash", "Write", "Edit", "Read"),
            ],
            work=work,
            home=home,
            environ={
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "unused",
                "ANTHROPIC_MODEL": "simulated:instant",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
        )
        outcomes = server.outcomes("/v1/messages")
    assert done.status == 0, done.errors
    events = [json.loads(line) for line in done.output.splitlines()]
    result = events[-1]
    assert (result["result"], result["is_error"]) == ("Done: it prints hello.", False)
    said = [event["message"] for event in events if event["type"] == "assistant"]
    blocks = [block for message in said for block in message["content"]]
    assert [block["type"] for block in blocks] == [
        *("thinking", "text", "tool_use", "tool_use", "tool_use", "tool_use", "tool_use", "text")
    ]
    assert blocks[0]["thinking"].strip() == "A file is needed."
    assert (work / "hello.py").read_text() == "print('hello')\n"
    assert (work / "out.txt").read_text() == "hello\n"
    assert outcomes == ["tool_calls"] * 4 + ["stop"]
