"""Shows what a process is doing, for debugging one that is stuck."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import stat

_STDERR = 2  # by number: ``sys.stderr`` may not be a file


def write_stacks_on_sigusr1() -> None:
    """From now on ``kill -USR1 PID`` writes the Python stack of every thread to standard error,
    even while the process is inside C code. The process continues."""
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=_stderr_that_never_waits(), all_threads=True)


def write_stacks_and_exit_in(seconds: float) -> None:
    """Exit with status 1 after this time, even from within C code, if the process has not ended by
    then; what every thread was doing is written to standard error."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr_that_never_waits())


@functools.cache  # open as long as the process lives
def _stderr_that_never_waits() -> int:
    """Return a descriptor for standard error whose writes fail while a pipe's reader does not
    read: a signal handler that waited for it would stop the process.

    Standard error itself stays as it is, since other processes have the same open file, and its
    ``O_NONBLOCK`` would be theirs, too. Linux opens a pipe or a terminal again by its name in
    /proc. A file opened again would have another position, and needs no reader; a socket cannot be
    opened."""
    try:
        mode = os.fstat(_STDERR).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            return os.open(f"/proc/self/fd/{_STDERR}", flags)
    except OSError:
        pass
    return _STDERR
