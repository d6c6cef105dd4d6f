"""Ties the life of this process to that of its parent."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable


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
