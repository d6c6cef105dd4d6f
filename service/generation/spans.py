"""From positions in the output text back to the tokens that made it."""

from __future__ import annotations

from collections import deque


class TokenSpans:
    """Text is pushed as tokens complete it; offsets asked for must not fall."""

    __slots__ = ("_ends", "_last", "total")

    def __init__(self) -> None:
        self.total = 0  # characters pushed
        self._last = 0
        self._ends: deque[tuple[int, int]] = deque()

    def push(self, characters: int, tokens: int) -> None:
        """``characters`` (at least 1) more were completed by the ``tokens``-th output token."""
        self.total += characters
        self._last = tokens
        self._ends.append((self.total, tokens))

    def tokens_before(self, offset: int) -> int:
        """How many tokens it takes to make the first ``offset`` characters."""
        ends = self._ends
        if offset >= self.total:
            ends.clear()
            return self._last
        while ends[0][0] < offset:
            ends.popleft()
        return ends[0][1]
