"""A process that the supervisor keeps alive."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.beats import Page, Sign
from observability.logging import get_logger
from service.supervision.child_process import main_thread_ticks, signal_group, spawn
from service.supervision.hang_watch import Silence
from service.supervision.restarts import FAILING_DEATHS, HEALTHY_SECONDS, RestartPolicy

_log = get_logger()
_MOST_CHARS = 2000  # of a sentence that says why it cannot start


@dataclass(slots=True, eq=False)
class Child:
    """How to start the process, and the state of the running one. ``index``: among the workers or
    the engines."""

    name: str
    index: int
    module: str
    arguments: list[str]
    environ: dict[str, str]
    page: Page
    silence: Silence  # without beats
    inactivity: Silence  # of its main thread
    hangs: Callable[[Page, float, float], bool]  # called with the seconds of both
    inherit: tuple[int, ...] = ()
    failure_file: Path | None = None  # where it writes why it cannot start
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    pid: int | None = None
    started: float = 0.0
    restart_at: float | None = None
    is_condemned: bool = False  # killed because it hung

    def start(self) -> None:
        self.restart_at = None
        self.is_condemned = False
        self.page.clear()
        self.silence.forget()
        self.inactivity.forget()
        self.started = time.monotonic()
        if self.failure_file is not None:
            self.failure_file.unlink(missing_ok=True)
        self.pid = spawn(self.module, self.arguments, self.environ, inherit=self.inherit)
        _log.info("started", child=self.name, pid=self.pid)

    def restart(self) -> None:
        """Start it again. If the system cannot, because processes or memory are short, that counts
        as a death without progress and is tried again later."""
        try:
            self.start()
        except OSError as error:
            _log.error("cannot be started", child=self.name, error=error.strerror or str(error))
            self.restart_later(progress=False)

    def restart_later(self, *, progress: bool) -> None:
        """Have it started again after the policy's delay. ``progress``: it made some before it
        died."""
        delay = self.policy.delay_after(progress=progress)
        _log.info("restarting", child=self.name, delay_seconds=delay)
        if self.policy.fruitless_deaths >= FAILING_DEATHS:
            _log.error(
                "keeps dying without progress",
                child=self.name,
                deaths=self.policy.fruitless_deaths,
            )
        self.restart_at = time.monotonic() + delay

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            signal_group(self.pid, number)

    def kill_if_it_hangs(self, now: float) -> None:
        if self.pid is None or self.is_condemned:
            return
        beats = self.page[Sign.BEATS]
        silent = self.silence.observe(beats, now)
        ticks = main_thread_ticks(self.pid)
        inactive = self.inactivity.observe((beats, ticks), now)
        if not self.hangs(self.page, silent, 0.0 if ticks is None else inactive):
            return
        self.is_condemned = True
        _log.error(
            "is unresponsive, killing it",
            child=self.name,
            pid=self.pid,
            silent_seconds=round(silent, 1),
            is_starting=not self.page[Sign.READY_AT],
        )
        self.signal(signal.SIGKILL)

    def failure(self) -> str:
        """Return the sentence with which it refused to start; empty if it wrote none."""
        if self.failure_file is None:
            return ""
        with contextlib.suppress(OSError):
            text = self.failure_file.read_text(encoding="utf-8", errors="replace")
            return " ".join(text[:_MOST_CHARS].split())
        return ""

    @property
    def is_ready(self) -> bool:
        """True if it has reported that it has started."""
        return self.pid is not None and self.page[Sign.READY_AT] > 0

    @property
    def made_progress(self) -> bool:
        """True if it made progress since it started, or has been ready for a while and may be
        idle."""
        ready_at = self.page[Sign.READY_AT]
        is_healthy = ready_at > 0 and time.monotonic() - ready_at >= HEALTHY_SECONDS
        return self.page[Sign.PROGRESS] > 0 or is_healthy
