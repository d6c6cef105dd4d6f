"""Servers that answer an agent by a script, in pocket's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agents.witness import Seen, Witness, witness
from tests.e2e.quire_server import QuireServer, until

# In every prompt of the task itself; an agent's other requests have other prompts.
MARK = "QUIRE-TASK"
TASK = f"{MARK}: write hello.py so that it prints hello, run it, and keep its output in out.txt"
CALM = "A small program"
# What agents ask before they begin.
PROBES = (Seen("HEAD", "/", 200), Seen("GET", "/v1/models", 200))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class ScriptedServer:
    """``url`` is the witness's, ``own_url`` the server's: for what the witness does not forward."""

    def __init__(self, server: QuireServer, watched: Witness) -> None:
        self.url = watched.url
        self.own_url = server.url
        self._server = server
        self._watched = watched

    def logged(self, route: str, count: int) -> list[str]:
        """How the first ``count`` requests of a route ended, in order."""

        def told() -> list[str] | None:
            lines = [line for line in self._server.log_lines() if line.get("event") == "request"]
            outcomes = [line["outcome"] for line in lines if line["route"] == route]
            return outcomes if len(outcomes) >= count else None

        return until(told, 10, f"a log line of each request to {route}")

    def outcomes(self, path: str) -> list[str]:
        """How each request to ``path`` ended, in order. Nothing else was asked, and all of it was
        answered well."""
        assert set(self._watched.seen) <= {Seen("POST", path, 200), *PROBES}
        asked = sum(seen.path == path for seen in self._watched.seen)
        return self.logged(path.rpartition("/")[2], asked)


@contextmanager
def scripted_server(folder: Path, replies: list[str], *arguments: str) -> Iterator[ScriptedServer]:
    """``replies[n]`` answers the task's prompt once it holds n tool results."""
    script = folder / "script.jsonl"
    rules: list[dict[str, Any]] = [
        {"when": MARK, "count": "<tool_response>", "replies": replies},
        {"reply": CALM},
    ]
    script.write_text("\n".join(json.dumps(rule) for rule in rules))
    model = f"simulated:instant,script={script},context=1000000"
    with QuireServer(model, *arguments) as server, witness(server.port) as watched:
        yield ScriptedServer(server, watched)
