"""Codex CLI, over the Responses API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent import Finished, program, run_agent
from tests.agents.scripted import TASK, call, scripted_server

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(
        find_spec("service.http.responses.create") is None,
        reason="Codex speaks the Responses API only, which this server does not have yet",
    ),
]


DONE = "Done: it prints hello."
ADD = "*** Begin Patch\n*** Add File: hello.py\n+print('helo')\n*** End Patch\n"
UPDATE = """\
*** Begin Patch
*** Update File: hello.py
@@
-print('helo')
+print('hello')
*** End Patch
"""
CONFIG = """
model = "{model}"
model_provider = "quire"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.quire]
name = "quire"
base_url = "{url}/v1"
env_key = "QUIRE_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True)
class Turn:
    """What Codex did and said, and how each of its requests ended."""

    work: Path
    done: Finished
    outcomes: list[str]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.done.output.splitlines() if line[:1] == "{"]

    def items(self, kind: str) -> list[dict[str, Any]]:
        completed = (event for event in self.events if event["type"] == "item.completed")
        return [event["item"] for event in completed if event["item"]["type"] == kind]

    def check(self, *, calls: int) -> None:
        """It finished the task after as many answers that called tools, all of them accepted."""
        assert self.done.status == 0, self.done.errors
        assert self.events[-1]["type"] == "turn.completed"
        assert self.items("agent_message")[-1]["text"] == DONE
        assert (self.work / "hello.py").read_text() == "print('hello')\n"
        assert (self.work / "out.txt").read_text() == "hello\n"
        assert self.outcomes == ["tool_calls"] * calls + ["stop"]


def run_codex(folder: Path, replies: list[str], *, model: str) -> Turn:
    """Codex decides by the model's name which tools it offers, and how."""
    codex = str(program("codex"))
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    with scripted_server(folder, replies, "--served-model-name", model) as server:
        (home / "config.toml").write_text(CONFIG.format(model=model, url=server.url))
        done = run_agent(
            [*(codex, "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access"), TASK],
            work=work,
            home=home,
            environ={"CODEX_HOME": str(home), "QUIRE_KEY": "unused"},
        )
        return Turn(work, done, server.outcomes("/v1/responses"))


def test_its_own_provider_works_over_a_websocket(tmp_path: Path) -> None:
    """With nothing but another base URL it speaks WebSocket first, and would try that for seconds
    where it is not served."""
    codex = str(program("codex"))
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    replies = [
        call("exec_command", cmd="echo \"print('hello')\" > hello.py"),
        call("exec_command", cmd="python3 hello.py > out.txt"),
        DONE,
    ]
    with scripted_server(tmp_path, replies, "--served-model-name", "some-model") as server:
        config = f'openai_base_url = "{server.own_url}/v1"\nmodel = "some-model"\n'
        (home / "config.toml").write_text(f"{config}check_for_update_on_startup = false\n")
        done = run_agent(
            [*(codex, "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access"), TASK],
            work=work,
            home=home,
            environ={
                "CODEX_HOME": str(home),
                "OPENAI_API_KEY": "unused",
                "CODEX_API_KEY": "unused",
            },
        )
        turn = Turn(work, done, server.logged("responses", 3))
    turn.check(calls=2)
    # It reports each attempt that fails, and that it falls back to HTTP.
    assert [event for event in turn.events if event["type"] == "error"] == []


def test_it_writes_runs_edits_and_reads(tmp_path: Path) -> None:
    turn = run_codex(
        tmp_path,
        [
            "I write it first.\n" + call("exec_command", cmd="echo \"print('helo')\" > hello.py"),
            call("exec_command", cmd="python3 hello.py"),
            call("exec_command", cmd="sed -i s/helo/hello/ hello.py"),
            call("exec_command", cmd="python3 hello.py > out.txt")
            + "\n"
            + call("exec_command", cmd="cat hello.py"),
            "never: two calls were made at once",
            DONE,
        ],
        model="some-model",
    )
    turn.check(calls=4)
    assert [item["exit_code"] for item in turn.items("command_execution")] == [0] * 5
    assert turn.items("agent_message")[0]["text"] == "I write it first."


def test_it_edits_by_patches_a_custom_tool_bound_by_a_grammar(tmp_path: Path) -> None:
    turn = run_codex(
        tmp_path,
        [
            call("apply_patch", input=ADD),
            call("exec_command", cmd="python3 hello.py"),
            call("apply_patch", input=UPDATE),
            call("exec_command", cmd="python3 hello.py > out.txt; cat hello.py"),
            DONE,
        ],
        model="gpt-5.5",
    )
    turn.check(calls=4)
    kinds = [change["kind"] for item in turn.items("file_change") for change in item["changes"]]
    assert kinds == ["add", "update"]


def test_it_runs_code_that_calls_its_tools(tmp_path: Path) -> None:
    """Its newest models get their tools in an input item, in namespaces, one of them ``exec``."""
    turn = run_codex(
        tmp_path,
        [
            call("exec", input=f"text(await tools.apply_patch({json.dumps(ADD)}));"),
            call("exec", input='text(await tools.exec_command({cmd: "python3 hello.py"}));'),
            call("exec", input=f"text(await tools.apply_patch({json.dumps(UPDATE)}));"),
            call(
                "exec", input='text(await tools.exec_command({cmd: "python3 hello.py>out.txt"}));'
            ),
            DONE,
        ],
        model="gpt-6.1-sol",
    )
    turn.check(calls=4)
