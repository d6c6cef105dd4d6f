"""The loading progress of all ranks together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import get_args

from engine.ranks.messages import LoadingPhase

_PHASES: tuple[LoadingPhase, ...] = get_args(LoadingPhase)


class LoadingProgress:
    """Reports the phase of the slowest rank, and the average progress in it. Thread-safe; nothing
    is reported after ``finish``."""

    def __init__(self, size: int, report: Callable[[str, int, int], None]) -> None:
        self._lock = threading.Lock()
        self._report = report
        self._at = [(0, 0, 1)] * size  # phase, done, total of each rank
        self._last = (-1, 0, 0)
        self._is_finished = False

    def update(self, rank: int, phase: str, done: int, total: int) -> None:
        with self._lock:
            self._at[rank] = (_PHASES.index(phase), done, total)
            slowest = min(place for place, _, _ in self._at)
            whole = max(total for place, _, total in self._at if place == slowest)
            parts = (done if place == slowest else whole for place, done, _ in self._at)
            now = (slowest, sum(parts) // len(self._at), whole)
            if now != self._last and not self._is_finished:
                self._last = now
                self._report(_PHASES[slowest], now[1], whole)

    def finish(self) -> None:
        with self._lock:
            self._is_finished = True
