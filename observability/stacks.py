"""Shows what a process is doing, for debugging one that is stuck."""

from __future__ import annotations

import faulthandler
import signal

_STDERR = 2  # by number: ``sys.stderr`` may not be a file


def write_stacks_on_sigusr1() -> None:
    """From now on ``kill -USR1 PID`` writes the Python stack of every thread to standard error,
    even while the process is inside C code. The process continues."""
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True)


def write_stacks_and_exit_in(seconds: float) -> None:
    """Exit with status 1 after this time, even from within C code, if the process has not ended by
    then; what every thread was doing is written to standard error."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
