"""What the supervisor does before the engines start when a model is served by its name: a process
downloads, while workers already answer.

The worker needs the tokenizer and the chat template; the engine needs the weights. So the small
files are fetched before anything starts, which takes seconds, and the weights by a child of the
supervisor, once for all engines. It is neither the engine, of which there may be several, nor the
supervisor, which imports no library that uses the network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import msgspec

from engine.python_command import python_command
from service.hub.place import ModelPlace
from service.settings import ServiceSettings
from service.supervision.child_process import child_environment

MODULE = "service.hub"
# What a token may be in. Only the process that downloads needs one.
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
FAILED = "the model could not be downloaded, see above"


class _FirstFiles(msgspec.Struct, frozen=True):
    commit: str
    directory: str
    is_whole: bool


class FirstFilesError(Exception):
    """The process has said why. ``status``: with which to exit."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def download_arguments(place: ModelPlace) -> list[str]:
    """Return those of the process that downloads."""
    arguments = [f"--name={place.name}", f"--revision={place.revision}", f"--cache={place.cache}"]
    if place.variant is not None:
        arguments.append(f"--variant={place.variant}")
    return arguments if place.pinned is None else [*arguments, f"--commit={place.pinned}"]


def fetch_first(
    place: ModelPlace, logs: list[str], *, needs_weights: bool
) -> tuple[Path, ModelPlace | None]:
    """Have all that a worker needs. Returns the model's directory, and the place whose weights are
    still to be downloaded or checked, None if they are right. A GGUF file, which has the tokenizer
    in it, is there as a whole then. Raises FirstFilesError."""
    if (whole := place.whole_snapshot()) is not None:
        return whole, None
    command = python_command(
        *("-m", MODULE, "--first", f"--parent-pid={os.getpid()}", *download_arguments(place)),
        *logs,
        "--needs-weights" if needs_weights else "--no-needs-weights",
    )
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=0,  # the terminal's Ctrl-C is for this process
        env=child_environment(os.environ),
    )
    with child, ending_at_signals(child) as stopped:
        output, _ = child.communicate()
    if stopped:
        raise FirstFilesError(128 + stopped[0])
    if child.returncode != 0:
        raise FirstFilesError(1)
    found = msgspec.json.decode(output, type=_FirstFiles)
    is_done = found.is_whole or not needs_weights or place.variant is not None
    missing = None if is_done else dataclasses.replace(place, pinned=found.commit)
    return Path(found.directory), missing


def log_arguments(settings: ServiceSettings) -> list[str]:
    """Return the arguments of a child that logs as the server does."""
    return [f"--log-format={settings.log_format}", f"--log-level={settings.log_level}"]


def without_token(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for processes that have no use for the hub's token."""
    return {name: value for name, value in environ.items() if name not in TOKEN_VARIABLES}


@contextlib.contextmanager
def ending_at_signals(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """End the child at a signal, which process 1 of a container would otherwise ignore; yield the
    signals that came."""
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        child.kill()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
