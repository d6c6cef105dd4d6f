"""Ties the life of this process to that of its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

_PR_SET_PDEATHSIG = 1


def watch_parent(on_exit: Callable[[], None], parent: int | None = None) -> threading.Thread:
    """Call ``on_exit`` once, from a separate thread, when the parent process is gone.

    ``parent`` is its process id, if known to the caller: with it, a parent that died before this
    call is noticed too.

    The kernel's parent-death signal is sent when the *thread* that started this process ends; this
    function watches the parent process as a whole.
    """
    parent = os.getppid() if parent is None else parent
    thread = threading.Thread(
        target=_wait, args=(parent, on_exit), name="engine-parent", daemon=True
    )
    thread.start()
    return thread


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, even if this process
    is busy; ``parent`` is that thread's process, which may have ended already. For a process that
    was started by a main thread and has nothing to clean up. Does nothing on systems other than
    Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def end_without_reader() -> Iterator[None]:
    """End this process without a message if what it writes to has no reader: the parent that reads
    it is gone, and may be so before ``watch_parent`` notices. A normal exit would try to write the
    rest and fail again."""
    try:
        yield
    except BrokenPipeError:
        os._exit(0)


def _wait(parent: int, on_exit: Callable[[], None]) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # not Linux 5.3 or later, or the parent is already gone
        while os.getppid() == parent:
            time.sleep(0.5)
    else:
        try:
            # The parent may have died between getppid and pidfd_open, and its id been reused.
            if os.getppid() == parent:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll()
        finally:
            os.close(descriptor)
    on_exit()
