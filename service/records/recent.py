"""Exact quantiles of the requests that ended lately.

Values are kept sorted as requests end, so that reading takes no time however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from observability.admin_api import Quantiles, Window
from service.records.row import Row

# Of a window. If more end within its seconds, it has the last of them only.
MOST_ENDED = 16_384


class _Ended(NamedTuple):
    time: float
    outcome: str
    values: tuple[float | None, float | None, float]  # ttft, itl_mean, total


class RecentlyEnded:
    """The requests that ended in the last ``seconds``. Times are epoch seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ended: deque[_Ended] = deque()
        self._sorted: tuple[list[float], ...] = ([], [], [])
        self._outcomes: Counter[str] = Counter()

    def add(self, row: Row) -> None:
        if row.ended is None:
            return
        self._forget(row.ended)
        if len(self._ended) == MOST_ENDED:
            self._forget_oldest()
        ended = _Ended(row.ended, row.outcome, (row.ttft, row.itl_mean, row.total))
        self._ended.append(ended)
        self._outcomes[row.outcome] += 1
        for kept, value in zip(self._sorted, ended.values, strict=True):
            if value is not None:
                insort(kept, value)

    def window(self, now: float, objectives: Mapping[str, float]) -> Window:
        """Return what is known from ended requests; the rest is left at 0. ``objectives``: seconds
        that a request's "ttft" and "itl" may take."""
        self._forget(now)
        ttft, itl, total = self._sorted
        values = {"ttft": ttft, "itl": itl}
        return Window(
            seconds=self.seconds,
            ended={name: count / self.seconds for name, count in self._outcomes.items() if count},
            ttft=quantiles(ttft),
            itl=quantiles(itl),
            total=quantiles(total),
            attainment={
                name: _share_within(values[name], limit) for name, limit in objectives.items()
            },
        )

    def _forget(self, now: float) -> None:
        since = now - self.seconds
        while self._ended and self._ended[0].time <= since:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self._ended.popleft()
        self._outcomes[oldest.outcome] -= 1
        for kept, value in zip(self._sorted, oldest.values, strict=True):
            if value is not None:
                del kept[bisect_left(kept, value)]


def quantiles(ordered: list[float]) -> Quantiles:
    """Return the quantiles by nearest rank: each is the value of one request."""
    count = len(ordered)
    if not count:
        return Quantiles()
    p50, p95, p99 = (ordered[-(-count * percent // 100) - 1] for percent in (50, 95, 99))
    return Quantiles(p50, p95, p99, count)


def _share_within(ordered: list[float], limit: float) -> float | None:
    return bisect_right(ordered, limit) / len(ordered) if ordered else None
