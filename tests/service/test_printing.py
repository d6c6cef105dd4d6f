"""A command whose output cannot be written ends without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.python_command import python_command
from service.printing import with_output

PRINTS = """
import sys
from service.printing import with_output
def command():
    print("x" * int(sys.argv[1]), end="", file=getattr(sys, sys.argv[2]))
    return 3
sys.exit(with_output(command))
"""
FULL = Path("/dev/full")
NO_READER = 128 + signal.SIGPIPE


def run(*words: str, **more: int) -> tuple[int, str]:
    done = subprocess.run(
        words,
        stdout=more.get("stdout", subprocess.DEVNULL),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1" if more.get("unbuffered") else ""},
    )
    return done.returncode, done.stderr


def without_reader(*words: str, **more: int) -> tuple[int, str]:
    read, write = os.pipe()
    os.close(read)
    try:
        return run(*words, stdout=write, **more)
    finally:
        os.close(write)


def full_disk(*words: str, **more: int) -> tuple[int, str]:
    with FULL.open("w") as full:
        return run(*words, stdout=full.fileno(), **more)


# More than the buffer, which is written by the command, and less, which is written at its end.
SIZES = pytest.mark.parametrize(("size", "unbuffered"), [("1000000", 0), ("10", 0), ("10", 1)])


@SIZES
def test_without_a_reader_a_command_ends_silently(size: str, unbuffered: int) -> None:
    command = python_command("-c", PRINTS, size, "stdout")
    assert without_reader(*command, unbuffered=unbuffered) == (NO_READER, "")


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
@SIZES
def test_a_full_disk_is_said_in_a_sentence(size: str, unbuffered: int) -> None:
    said = "quire: the output could not be written: No space left on device\n"
    command = python_command("-c", PRINTS, size, "stdout")
    assert full_disk(*command, unbuffered=unbuffered) == (1, said)


def test_a_status_is_that_of_the_command() -> None:
    assert run(*python_command("-c", PRINTS, "10", "stdout")) == (3, "")
    assert run(*python_command("-c", PRINTS, "1", "stderr")) == (3, "x")


def test_another_error_is_not_taken_for_one_of_the_output() -> None:
    def command() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        with_output(command)


@pytest.mark.parametrize("words", [("--help",), ("keys", "list", "--help")])
def test_the_commands_of_quire_end_so(words: tuple[str, ...]) -> None:
    command = (sys.executable, "-P", "-m", "service.cli", *words)
    assert without_reader(*command) == (NO_READER, "")
