"""A rank's process on this machine, and what is known of one on another host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from engine.python_command import python_command

RANK_MODULE = "engine.ranks.rank"
# Stopping is up to the process that starts ranks, but they get the signals sent to its group too.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PACKAGES = Path(__file__).resolve().parents[2]


class RankProcess(Protocol):
    """What ``subprocess.Popen`` can do, as far as it is needed of a rank."""

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs or if that is not
        known."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        ...

    def kill(self) -> None: ...


def start_rank(
    number: int,
    connection: socket.socket,
    environ: Mapping[str, str],
    arguments: tuple[str, ...] = (),
    module: str = RANK_MODULE,
) -> subprocess.Popen[bytes]:
    """Start a rank of which this process is the parent; ``connection`` leads to rank 0 and may be
    closed here afterwards. Call it on the main thread: the rank ends with the thread that started
    it."""
    paths = [str(_PACKAGES), *filter(None, [environ.get("PYTHONPATH")])]
    argv = python_command("-m", module, f"--rank={number}", f"--parent={os.getpid()}")
    # Child processes inherit the mask of blocked signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        return subprocess.Popen(
            [*argv, f"--channel={connection.fileno()}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard error: rank 0's standard output may be used for data
            pass_fds=[connection.fileno()],
            env={**environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe_end(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal, or none at all: another host reports what it likes
        return f"was killed by signal {-code}"
