"""Maps positions in the output text back to the tokens that made it."""

from __future__ import annotations

from collections import deque


class TokenSpans:
    """Text is pushed as tokens complete it. Look offsets up in rising order."""

    __slots__ = ("_ends", "_last", "_start", "total")

    def __init__(self) -> None:
        self.total = 0  # characters pushed
        self._last = 0
        self._start = 0  # of the first piece in _ends
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
            self._start = self.total
            return self._last
        while ends[0][0] < offset:
            self._start = ends.popleft()[0]
        return ends[0][1]

    def is_one_piece(self, offset: int, size: int) -> bool:
        """Whether one token completed the ``size`` characters from ``offset`` on."""
        start = self._start
        for end, _ in self._ends:
            if offset < end:
                return start <= offset and offset + size <= end
            start = end
        return False
