"""``quire serve --tensor-parallel-size 2``, on one host and with ``quire join``: the answers of one
process, and a death that passes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.quire_server import (
    QuireServer,
    command_of,
    descendants,
    free_port,
    is_running,
    until,
)

pytestmark = pytest.mark.one_process

ASKED: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hello!"}]},
    {"messages": [{"role": "user", "content": "What is 48 - 19?"}], "logprobs": True},
    {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 60},
    {
        "messages": [{"role": "user", "content": "Tell me about a castle."}],
        "max_tokens": 60,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "x",
                "schema": {
                    "type": "object",
                    "properties": {"a": {"enum": ["yes", "no"]}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            },
        },
    },
]
CPU = ("--device", "cpu", "--cpu-path", "torch", "--threads", "1")


def answers(server: QuireServer) -> list[str]:
    found = []
    for ask in ASKED:
        status, reply = server.post(
            "/v1/chat/completions", {"model": "pocket", "temperature": 0, **ask}
        )
        assert status == 200, reply
        found.append(reply["choices"][0]["message"]["content"])
    return found


def rank_pids(server: QuireServer) -> set[int]:
    assert server.process is not None
    family = descendants(server.process.pid)
    return {pid for pid in family if b"engine.ranks.rank" in command_of(pid)}


@pytest.mark.proves("ranks", "process")
def test_two_ranks_answer_as_one_process_come_back_after_a_death_and_leave_nothing() -> None:
    with QuireServer(*CPU) as server:
        expected = answers(server)
    with QuireServer(*CPU, "--tensor-parallel-size", "2") as server:
        assert answers(server) == expected
        health = json.loads(server.get("/health")[1])
        assert health["engine"]["tensor_parallel_size"] == 2
        [first] = rank_pids(server)
        os.kill(first, signal.SIGKILL)
        until(lambda: rank_pids(server) - {first}, 60, "the engine's return")
        server.wait_ready()
        assert answers(server) == expected
        events = [str(line["event"]) for line in server.log_lines()]
        assert events.count("rank 1 was killed by SIGKILL; all ranks end") == 1
        assert server.process is not None
        everything = descendants(server.process.pid)
        assert server.terminate() == 0
    until(lambda: not any(is_running(pid) for pid in everything), 5, "an empty house")


@pytest.mark.proves("ranks", "process")
def test_two_hosts_answer_as_one_process_and_serve_again_when_one_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, port = tmp_path / "secret", free_port()
    secret.write_text("a secret of some length\n")
    monkeypatch.setenv("QUIRE_RANKS_SECRET_FILE", str(secret))
    join = [sys.executable, "-P", "-m", "service.cli", "join", f"127.0.0.1:{port}", "--name=b"]
    hosts = ("--tensor-parallel-size=2", "--tensor-parallel-hosts=2", "--ranks-host=127.0.0.1")
    with QuireServer(*CPU) as server:
        expected = answers(server)
    other = subprocess.Popen(join)
    try:
        with QuireServer(*CPU, *hosts, f"--ranks-port={port}") as server:
            assert answers(server) == expected
            assert rank_pids(server) == set()
            other.kill()
            other.wait()
            until(lambda: server.get("/health/ready")[0] != 200, 30, "the engine's end")
            other = subprocess.Popen(join)
            server.wait_ready()
            assert answers(server) == expected
            lines = [str(line["event"]) for line in server.log_lines()]
            said = "host b (127.0.0.1) with rank 1 left, or cannot be reached; all ranks end"
            assert lines.count(said) == 1
            assert server.terminate() == 0
        other.terminate()
        assert other.wait(30) == 0
    finally:
        other.kill()
        other.wait()
