"""How fast sequences leave the waiting queue, and how fast prompts are computed."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 30.0
_MOST_NOTED = 256
# How much of the best prefill pace is remembered from one prefill to the next.
_KEPT_OF_BEST = 0.999


class DrainPace:
    """Notes the admissions of sequences that had to wait. Times in seconds."""

    __slots__ = ("_noted", "_tokens")

    def __init__(self) -> None:
        self._noted: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def note(self, now: float, tokens: int) -> None:
        self._noted.append((now, tokens))
        self._tokens += tokens
        if len(self._noted) > _MOST_NOTED:
            self._tokens -= self._noted.popleft()[1]

    def per_second(self, now: float) -> tuple[float, float] | None:
        """Return the sequences and tokens per second of late; None if fewer than two sequences were
        admitted."""
        noted = self._noted
        while noted and noted[0][0] < now - _WINDOW_SECONDS:
            self._tokens -= noted.popleft()[1]
        if len(noted) < 2 or now <= noted[0][0]:
            return None
        # The first one only begins the interval.
        seconds = now - noted[0][0]
        return (len(noted) - 1) / seconds, (self._tokens - noted[0][1]) / seconds


class PrefillPace:
    """The best recent pace: an estimate from it is never too pessimistic about a large prompt
    because the last ones were small."""

    __slots__ = ("tokens_per_second",)

    def __init__(self) -> None:
        self.tokens_per_second: float | None = None

    def note(self, tokens: int, seconds: float) -> None:
        """``seconds``: of a step that computed ``tokens``."""
        if seconds > 0:
            best = (self.tokens_per_second or 0.0) * _KEPT_OF_BEST
            self.tokens_per_second = max(best, tokens / seconds)
