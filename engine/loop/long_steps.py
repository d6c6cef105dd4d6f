"""Reports a long step while it runs, so that clients can distinguish a busy engine from a dead one.

A step sends nothing before its end, and on a CPU it may take minutes. The main thread is inside the
model meanwhile, so a separate thread sends the reports. They stop when the step has taken longer
than it may: from then on the engine is silent, like one whose process was stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REPORT_SECONDS = 1.0
# A step may always take this long, and longer where earlier ones were slow.
ALLOWED_SECONDS = 30.0


class LongSteps:
    """``report`` is called with the seconds that the current step has run. ``allowed`` returns how
    many it may take, if that is more than ``ALLOWED_SECONDS``."""

    def __init__(
        self,
        report: Callable[[float], None],
        allowed: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._allowed = allowed
        self._clock = clock
        self._began: float | None = None  # when the current step did; None: no step runs

    def start(self) -> None:
        """Report from now on, until the process ends."""
        threading.Thread(target=self._run, name="long-steps", daemon=True).start()

    def step_begins(self) -> None:
        self._began = self._clock()

    def step_ended(self) -> None:
        self._began = None

    def look(self) -> None:
        """Report the current step if it takes long."""
        began = self._began
        if began is None:
            return
        seconds = self._clock() - began
        if REPORT_SECONDS <= seconds <= max(ALLOWED_SECONDS, self._allowed()):
            self._report(seconds)

    def _run(self) -> None:
        while True:
            time.sleep(REPORT_SECONDS)
            self.look()
