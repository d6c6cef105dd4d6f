"""Threads for work that mostly runs outside the interpreter's lock."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class Workers:
    """``threads`` threads that run tasks in order of submission. They are daemons, so a task that
    hangs does not keep the process from ending. ``nice``: their niceness relative to the process's,
    where the system supports it per thread."""

    def __init__(self, name: str, threads: int, *, nice: int = 0) -> None:
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._nice = nice
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> None:
        self._tasks.put(task)

    def close(self) -> None:
        """Let each thread end after its current task."""
        for _ in self._threads:
            self._tasks.put(None)

    def _run(self) -> None:
        if self._nice:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException:  # also a panic of Rust's, which would end the thread for all
                # The sequence whose task it was fails when its time is up
                # (``GrammarState.is_overdue``).
                logger.exception("a task failed")
