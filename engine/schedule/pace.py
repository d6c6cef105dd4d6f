"""How fast sequences leave the waiting queue, and how fast prompts are computed."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 30.0
_MOST_NOTED = 256
# How much of the best prefill pace is remembered from one prefill to the next.
_KEPT_OF_BEST = 0.999


class DrainPace:
    """Notes the admissions of sequences that had to wait. Only time in which something waited
    counts: an idle server is not a slow one. Times in seconds."""

    __slots__ = ("_noted", "_seconds", "_since", "_tokens")

    def __init__(self) -> None:
        self._noted: deque[tuple[float, int, float]] = deque()  # when, tokens, since the one before
        self._tokens = 0
        self._seconds = 0.0
        self._since = 0.0  # something has waited, and nothing was admitted

    def began(self, now: float) -> None:
        """Note that something waits again."""
        self._since = now

    def note(self, now: float, tokens: int) -> None:
        seconds = max(0.0, now - self._since)
        self._since = now
        self._noted.append((now, tokens, seconds))
        self._tokens += tokens
        self._seconds += seconds
        if len(self._noted) > _MOST_NOTED:
            self._forget()

    def _forget(self) -> None:
        _, tokens, seconds = self._noted.popleft()
        self._tokens -= tokens
        self._seconds -= seconds

    def per_second(self, now: float, *, waits: bool) -> tuple[float, float] | None:
        """Return the sequences and tokens per second of late; None if fewer than two sequences were
        admitted. ``waits``: something waits now."""
        noted = self._noted
        while noted and noted[0][0] < now - _WINDOW_SECONDS:
            self._forget()
        seconds = self._seconds + (max(0.0, now - self._since) if waits else 0.0)
        if len(noted) < 2 or seconds <= 1e-6:  # rounding may leave a little of zero
            return None
        return len(noted) / seconds, self._tokens / seconds


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
