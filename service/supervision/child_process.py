"""Starts and stops the supervisor's children."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.options import ENVIRONMENT_PREFIX
from engine.python_command import python_command

# The folder of engine/ and service/: children import them from here, not the working directory.
_PACKAGES = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.02


def package_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with Quire's packages first on the import path."""
    paths = [str(_PACKAGES), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}


def child_environment(
    environ: Mapping[str, str], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a child. Settings are passed as arguments, so that a QUIRE_*
    variable overridden by a flag here has no effect there."""
    kept = {
        name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    return {**package_environment(kept), **(extra or {})}


def spawn(
    module: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    inherit: Sequence[int] = (),
) -> int:
    """Run ``python -m module`` in a new process group (so that the terminal's Ctrl-C reaches only
    the supervisor), with no input and the descriptors in ``inherit``. Returns its process id."""
    argv = python_command("-m", module, *arguments)
    for descriptor in inherit:
        os.set_inheritable(descriptor, True)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            dict(environ),
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_hangup()],
        )
    finally:
        for descriptor in inherit:
            os.set_inheritable(descriptor, False)


def ignores_hangup() -> bool:
    """True if this process was started by nohup or the like. Call it before SIGHUP has a
    handler."""
    return signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def _hangup() -> list[signal.Signals]:
    """Return SIGHUP, to be reset in children, unless this process ignores it."""
    return [] if ignores_hangup() else [signal.SIGHUP]


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a child and the processes it started. They may be gone already."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def reap() -> list[tuple[int, int]]:
    """Return ids and exit codes (negative: the signal) of all children that ended, including
    adopted ones: as process 1 of a container the supervisor inherits every orphan in it."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def await_end(pids: Sequence[int], seconds: float) -> list[int]:
    """Reap these children as they end. Returns those that did not end within ``seconds``: even a
    killed process may never end, as the kernel does not interrupt it inside a device driver."""
    deadline = time.monotonic() + seconds
    left = list(pids)
    while True:
        left = [pid for pid in left if not _has_ended(pid)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_SECONDS)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # already reaped
        return True


def main_thread_ticks(pid: int) -> int | None:
    """Return the CPU time used by a process's main thread, in kernel ticks; None if it cannot be
    read."""
    try:
        # The name, in parentheses, may contain anything; utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return None


def describe_exit(code: int) -> str:
    """Return ``status 1`` or ``SIGKILL``, or ``signal 40`` for a signal without a name."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
