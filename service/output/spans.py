"""Maps offsets in the output text to the tokens that produced it."""

from __future__ import annotations

from collections import deque


class TokenSpans:
    """Push text as tokens complete it; look up offsets in increasing order."""

    __slots__ = ("_before", "_ends", "_last", "_start", "total")

    def __init__(self) -> None:
        self.total = 0  # characters pushed
        self._last = 0
        self._start = 0  # of the first piece in _ends
        self._before = 0  # tokens, up to there
        self._ends: deque[tuple[int, int]] = deque()

    def push(self, characters: int, tokens: int) -> None:
        """Record that the ``tokens``-th output token completed ``characters`` (at least 1) more."""
        self.total += characters
        self._last = tokens
        self._ends.append((self.total, tokens))

    def tokens_before(self, offset: int) -> int:
        """Return how many tokens are needed for the first ``offset`` characters."""
        ends = self._ends
        if offset >= self.total:
            ends.clear()
            self._start, self._before = self.total, self._last
            return self._last
        while ends[0][0] < offset:
            self._start, self._before = ends.popleft()
        return self._before if offset == self._start else ends[0][1]

    def tokens_ahead(self, offset: int) -> int:
        """Like ``tokens_before``, but smaller offsets may still be looked up afterwards."""
        return next((tokens for end, tokens in self._ends if end >= offset), self._last)

    def tokens_within(self, offset: int) -> int:
        """Return how many tokens have no text beyond the first ``offset`` characters."""
        ends = self._ends
        while ends and ends[0][0] <= offset:
            self._start, self._before = ends.popleft()
        return self._before

    def is_one_piece(self, offset: int, size: int) -> bool:
        """True if a single token completed the ``size`` characters from ``offset`` on."""
        start = self._start
        for end, _ in self._ends:
            if offset < end:
                return start <= offset and offset + size <= end
            start = end
        return False
