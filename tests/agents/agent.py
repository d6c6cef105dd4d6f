"""A coding agent started as a user would, with a separate home and a proxy to nowhere."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.quire_server import ROOT

PROGRAMS = ROOT / "build" / "agents" / "node_modules" / ".bin"
PATIENCE_SECONDS = 120
# Nothing listens on the discard port: what would call home fails at once.
NOWHERE = "http://127.0.0.1:9"


def program(name: str) -> Path:
    """Skips the test where the agent is not installed."""
    path = PROGRAMS / name
    if not path.exists():
        pytest.skip(f"{name} is not installed; `make test-agents` installs it")
    return path


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    errors: str


def run_agent(command: list[str], *, work: Path, home: Path, environ: dict[str, str]) -> Finished:
    """In ``work``, with ``home`` for its settings, and no variables but a path and ``environ``."""
    done = subprocess.run(
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
            **environ,
        },
    )
    return Finished(done.returncode, done.stdout, done.stderr)
