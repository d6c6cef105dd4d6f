"""Ties the life of this process to that of its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def watch_parent(on_exit: Callable[[], None], parent: int | None = None) -> threading.Thread:
    """Call ``on_exit`` once, from a thread of its own, when the parent process is gone.

    ``parent`` is its id, if whoever started this process told it: one that was gone before this
    call is noticed then, too.

    Unlike the kernel's parent-death signal, which is sent when the *thread* that started this
    process ends, this watches the parent as a whole.
    """
    parent = os.getppid() if parent is None else parent
    thread = threading.Thread(
        target=_wait, args=(parent, on_exit), name="engine-parent", daemon=True
    )
    thread.start()
    return thread


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, whatever this one is
    doing then; ``parent`` is that thread's process, which may have ended already. For a process
    started by a main thread, that has nothing to clean up. Where there is no such service (it is
    Linux's) nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _wait(parent: int, on_exit: Callable[[], None]) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # not Linux 5.3 or later, or the parent is gone already
        while os.getppid() == parent:
            time.sleep(0.5)
    else:
        try:
            # Between getppid and pidfd_open the parent may have gone and its id been used again.
            if os.getppid() == parent:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll()
        finally:
            os.close(descriptor)
    on_exit()
