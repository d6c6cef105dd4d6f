"""What was observed since the last look: the history has a row for each second.

Histograms in the ledger cannot say it exactly, and have no maxima.
"""

from __future__ import annotations

from collections import deque

# Far more than a second brings. Older observations are dropped if they are not read.
_MOST = 65_536


class Observed:
    """Fields are written while requests are served and steps arrive, and taken once a second."""

    __slots__ = ("first_tokens", "gaps", "longest_hold", "longest_step")

    def __init__(self) -> None:
        self.first_tokens: deque[float] = deque(maxlen=_MOST)  # seconds from receipt
        self.gaps: deque[tuple[float, int]] = deque(maxlen=_MOST)  # seconds, and how many
        self.longest_step = 0.0
        self.longest_hold = 0.0  # of the event loop

    def held(self, seconds: float) -> None:
        """The event loop was held, or late, for so long."""
        self.longest_hold = max(self.longest_hold, seconds)

    def clear(self) -> None:
        self.first_tokens.clear()
        self.gaps.clear()
        self.longest_step = self.longest_hold = 0.0
