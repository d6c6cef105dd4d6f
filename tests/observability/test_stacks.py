"""A process that seems stuck shows where it is, when it is sent SIGUSR1."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Modules with a main of theirs that end by themselves, on a developer's machine.
TOOLS = {"engine.cpu.library", "service.grpc.generate"} | {
    "service.drill_page",
    "service.routes_page",
    "service.settings_page",
}


def process_modules() -> set[str]:
    found = {"dashboard.app"}  # which Streamlit runs
    for top in ("engine", "service"):
        for path in (ROOT / top).rglob("*.py"):
            if 'if __name__ == "__main__":' in path.read_text():
                found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found - TOOLS


def test_processes_are_found() -> None:
    assert {"engine.__main__", "service.worker", "service.cli"} <= process_modules()


@pytest.mark.parametrize("module", sorted(process_modules()))
def test_every_process_writes_its_stacks_on_request(module: str) -> None:
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
    assert "    write_stacks_on_sigusr1()\n" in source


def test_the_stack_is_written_and_the_process_continues() -> None:
    code = (
        "import sys\n"
        "from observability.stacks import write_stacks_on_sigusr1\n"
        "def waits_here():\n"
        "    print(1, flush=True)\n"
        "    return sys.stdin.readline()\n"
        "write_stacks_on_sigusr1()\n"
        "print(waits_here())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate("goes on\n")
    assert "waits_here" in err
    assert "goes on" in out
    assert process.returncode == 0
