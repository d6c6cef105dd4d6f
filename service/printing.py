"""What a command does when its output cannot be written: its reader has gone (``quire keys list |
head -1``), or the disk is full."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TextIO

_NO_READER = 128 + signal.SIGPIPE  # the status of a program that this signal ends


def with_output(command: Callable[[], int]) -> int:
    """Run a command and write all that it has printed. Returns its exit status, or another one if
    its output could not be written; silently, as usual, if there is no reader."""
    try:
        try:
            return command()
        finally:
            # Here, since the interpreter would print a traceback at its end.
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except OSError as error:
        if not discard_unwritten(error):  # it was something else
            raise
        if isinstance(error, BrokenPipeError):
            return _NO_READER
        print(f"quire: the output could not be written: {error.strerror}", file=sys.stderr)
        return 1


def discard_unwritten(error: OSError) -> bool:
    """Drop what cannot be written to stdout and stderr, and all that is printed there later. True
    if that was the reason for the error."""
    found = error.errno == errno.ENOSPC and error.filename is None
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and _is_broken(stream):
            found = True
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
            stream.flush()
    return found


def _is_broken(stream: TextIO) -> bool:
    """True if something cannot be written, or no one reads it."""
    try:
        stream.flush()
    except OSError:
        return True
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except OSError:  # it has no descriptor
        return False
    return any(events & select.POLLERR for _, events in poll.poll(0))
