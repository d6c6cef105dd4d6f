"""A process that seems stuck shows where it is, when it is sent SIGUSR1."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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


WAITS = (
    "import sys\n"
    "from observability.stacks import write_stacks_on_sigusr1\n"
    "def waits_here():\n"
    "    print(1, flush=True)\n"
    "    return sys.stdin.readline()\n"
    "write_stacks_on_sigusr1()\n"
    "print(waits_here())\n"
)
# The second holds the interpreter's lock, as C code may.
HANGS = (
    "import ctypes, time; time.sleep(600)",
    "import ctypes; ctypes.PyDLL(None).sleep(600)",
)


@contextmanager
def running(code: str, stderr: int | BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def answered(process: subprocess.Popen[bytes]) -> None:
    """It runs, gets the signal, and continues."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(b"goes on\n", timeout=60)
    assert b"goes on" in out
    assert process.returncode == 0


def test_the_stack_is_written_and_the_process_continues() -> None:
    reading, writing = os.pipe()
    with running(WAITS, writing) as process, open(reading, "rb") as log:
        os.close(writing)
        answered(process)
        assert b"waits_here" in log.read()


def test_a_log_in_a_file_keeps_its_order(tmp_path: Path) -> None:
    """Though it was not opened to append."""
    code = WAITS + "print('after', file=sys.stderr)\n"
    with (tmp_path / "log").open("wb") as log, running(code, log) as process:
        answered(process)
    written = (tmp_path / "log").read_text()
    assert "waits_here" in written
    assert written.endswith("after\n")


def test_a_terminal_shows_the_stack() -> None:
    ours, theirs = pty.openpty()
    with running(WAITS, theirs) as process, open(ours, "rb", buffering=0) as screen:
        answered(process)
        seen = b""
        while b"waits_here" not in seen:
            seen += screen.read(4096)
        os.close(theirs)


@pytest.fixture
def full() -> Iterator[int]:
    """A pipe that is full, and stays so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    yield writing
    os.close(writing)
    os.close(reading)


def test_a_log_that_is_not_read_does_not_stop_the_process(full: int) -> None:
    with running(WAITS, full) as process:
        answered(process)
    assert os.get_blocking(full)  # as other processes that have it expect


@pytest.mark.parametrize("hang", HANGS, ids=["waits", "holds the lock"])
def test_a_process_that_hangs_ends_though_its_log_is_not_read(full: int, hang: str) -> None:
    code = "from observability.stacks import write_stacks_and_exit_in as end; end(0.2); "
    with running(code + hang, full) as process:
        assert process.wait(60) == 1


@pytest.mark.parametrize("hang", HANGS, ids=["waits", "holds the lock"])
def test_a_process_that_hangs_shows_its_stack(hang: str) -> None:
    code = "from observability.stacks import write_stacks_on_sigusr1 as show; show(); print(1, "
    code = f"{code}flush=True); {hang}"
    reading, writing = os.pipe()
    with open(reading, "rb") as log, running(code, writing) as process:
        os.close(writing)
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGUSR1)
        assert b"most recent call first" in log.readline()
