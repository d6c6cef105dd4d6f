"""Exact quantiles of the requests that ended lately.

Values are kept sorted as requests end, so that reading takes no time however many there are.
"""

from __future__ import annotations

import functools
import operator
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from observability.admin_api import Quantiles, Window
from service.records.row import Row

# Of a window. If more end within its seconds, it has the last of them only.
MOST_ENDED = 16_384
# Of one kind, that a worker sends to another one. Beyond it, quantiles are off by at most 0.1 % of
# the requests.
MOST_TOLD = 1000
PERCENTS = (50, 95, 99)


class _Ended(msgspec.Struct, frozen=True, gc=False):
    time: float
    outcome: str
    values: tuple[float | None, float | None, float]  # ttft, itl_mean, total


@functools.lru_cache(maxsize=8)
def _evenly_chosen(count: int) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Return what picks MOST_TOLD of so many values. Several lists have the same length."""
    places = [(2 * number + 1) * count // (2 * MOST_TOLD) for number in range(MOST_TOLD)]
    return operator.itemgetter(*places)


class ToldValues(msgspec.Struct, frozen=True, array_like=True):
    """``count`` values, of which ``values`` are evenly chosen ones or all, in ascending order."""

    count: int
    values: tuple[float, ...]

    @classmethod
    def of(cls, ordered: Sequence[float]) -> ToldValues:
        count = len(ordered)
        if count <= MOST_TOLD:
            return cls(count, tuple(ordered))
        return cls(count, _evenly_chosen(count)(ordered))


class WindowValues(msgspec.Struct, frozen=True, array_like=True):
    """What one worker knows of the requests that ended in a window: how many by outcome, and their
    times."""

    ended: dict[str, int]
    ttft: ToldValues
    itl: ToldValues
    total: ToldValues


class RecentlyEnded:
    """The requests that ended in the last ``seconds``. Times are epoch seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ended: deque[_Ended] = deque()
        # Not lists: the garbage collector looks at every item of a list.
        self._sorted = (array("d"), array("d"), array("d"))
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

    def values(self, now: float) -> WindowValues:
        """Return what another worker needs to join its figures with these."""
        self._forget(now)
        ended = {name: count for name, count in self._outcomes.items() if count}
        return WindowValues(ended, *(ToldValues.of(ordered) for ordered in self._sorted))

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


def quantiles(ordered: Sequence[float]) -> Quantiles:
    """Return the quantiles by nearest rank: each is the value of one request."""
    count = len(ordered)
    if not count:
        return Quantiles()
    p50, p95, p99 = (ordered[-(-count * percent // 100) - 1] for percent in PERCENTS)
    return Quantiles(p50, p95, p99, count)


def weighted_quantiles(weighted: Sequence[tuple[float, float]]) -> Quantiles:
    """Return the quantiles by nearest rank. ``weighted``: values in ascending order, each with how
    many it represents."""
    count = round(sum(weight for _, weight in weighted))
    if not count:
        return Quantiles()
    found: list[float] = []
    passed, values = 0.0, iter(weighted)
    value = 0.0
    for percent in PERCENTS:
        rank = -(-count * percent // 100)
        while round(passed, 6) < rank:
            value, weight = next(values)
            passed += weight
        found.append(value)
    p50, p95, p99 = found
    return Quantiles(p50, p95, p99, count)


def joined_window(
    seconds: float, parts: Sequence[WindowValues], objectives: Mapping[str, float]
) -> Window:
    """Return the figures of the requests that ended at several workers, as ``RecentlyEnded.window``
    does; exact if none of them had more than ``MOST_TOLD``."""
    outcomes: Counter[str] = Counter()
    for part in parts:
        outcomes.update(part.ended)
    weighted = {
        name: _weighted(getattr(part, name) for part in parts) for name in ("ttft", "itl", "total")
    }
    return Window(
        seconds=seconds,
        ended={name: count / seconds for name, count in outcomes.items()},
        ttft=weighted_quantiles(weighted["ttft"]),
        itl=weighted_quantiles(weighted["itl"]),
        total=weighted_quantiles(weighted["total"]),
        attainment={
            name: _weight_within(weighted[name], limit) for name, limit in objectives.items()
        },
    )


def _weighted(parts: Iterable[ToldValues]) -> list[tuple[float, float]]:
    """Return the values in ascending order, each with how many it represents."""
    return sorted((value, part.count / len(part.values)) for part in parts for value in part.values)


def _weight_within(weighted: Sequence[tuple[float, float]], limit: float) -> float | None:
    whole = sum(weight for _, weight in weighted)
    within = sum(weight for value, weight in weighted if value <= limit)
    return within / whole if whole else None


def _share_within(ordered: Sequence[float], limit: float) -> float | None:
    return bisect_right(ordered, limit) / len(ordered) if ordered else None
