"""The newest scrapes of one server, and what can be read off them: gauges, rates, quantiles.

Counters are corrected for restarts once, when a scrape comes in: a value below the one before
means that the process began again at 0. From then on every window is a plain difference, as in
PromQL's ``increase`` without its extrapolation to the window's edges. A series that appears
between two scrapes began at 0, which PromQL cannot know and we can.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.exposition import Page, Series
from dashboard.quantile import histogram_quantile

Match = Mapping[str, str]
"""Label values a series must have; labels not named may have any."""

_ANY: Match = {}
# Timer jitter must not cost a window its first scrape.
_JITTER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Scrape:
    """``time`` in seconds of one monotonic clock; ``totals`` are reset-corrected."""

    time: float
    gauges: Mapping[Series, float]
    totals: Mapping[Series, float]


class History:
    """The scrapes of the last ``seconds``. A window with a gap (without viewers, or with the server
    unavailable) is shorter than requested, or empty."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scrapes: deque[Scrape] = deque()
        self._raw: dict[Series, float] = {}
        self._lost: dict[Series, float] = {}  # what restarts have set back to 0

    def append(self, time: float, page: Page) -> None:
        """``time``: seconds, larger than that of the scrape before."""
        for series, value in page.cumulative.items():
            before = self._raw.get(series, 0.0)
            if value < before:
                self._lost[series] = self._lost.get(series, 0.0) + before
        self._raw.update(page.cumulative)
        lost = self._lost
        totals = {series: value + lost.get(series, 0.0) for series, value in self._raw.items()}
        self._scrapes.append(Scrape(time, page.gauges, totals))
        while self._scrapes[0].time < time - self._seconds - _JITTER_SECONDS:
            self._scrapes.popleft()

    def gauge(self, name: str, match: Match = _ANY) -> float:
        """Return the sum of the matching gauges in the newest scrape; NaN if there are none."""
        if not self._scrapes:
            return math.nan
        values = [v for s, v in self._scrapes[-1].gauges.items() if _matches(s, name, match)]
        return sum(values) if values else math.nan

    def info(self, name: str) -> dict[str, str]:
        """Return the labels of the newest scrape's first gauge called ``name``; empty if there is
        none."""
        if not self._scrapes:
            return {}
        labels = (dict(s.labels) for s in self._scrapes[-1].gauges if s.name == name)
        return next(labels, {})

    def increase(self, name: str, seconds: float, match: Match = _ANY) -> float:
        """Return the growth of the matching counters over the last ``seconds``, including restarts;
        NaN before the second scrape or without such a counter."""
        span = self._span(seconds)
        grown = list(_growth(span, name, match).values()) if span else []
        return sum(grown) if grown else math.nan

    def rate(self, name: str, seconds: float, match: Match = _ANY) -> float:
        """``increase`` per second of the time between the scrapes it was taken from."""
        span = self._span(seconds)
        if span is None:
            return math.nan
        return self.increase(name, seconds, match) / (span[1].time - span[0].time)

    def rates_by(self, name: str, label: str, seconds: float) -> dict[str, float]:
        """``rate`` for each value of ``label``."""
        span = self._span(seconds)
        if span is None:
            return {}
        elapsed = span[1].time - span[0].time
        rates: dict[str, float] = {}
        for series, grown in _growth(span, name, _ANY).items():
            value = dict(series.labels).get(label, "")
            rates[value] = rates.get(value, 0.0) + grown / elapsed
        return rates

    def quantile(self, quantile: float, name: str, seconds: float, match: Match = _ANY) -> float:
        """Of the observations that histogram ``name`` received in the last ``seconds``, in the
        histogram's unit; NaN when it received none."""
        span = self._span(seconds)
        grown = _growth(span, f"{name}_bucket", match) if span else {}
        return histogram_quantile(quantile, ((float(s.bound), n) for s, n in grown.items()))

    def _span(self, seconds: float) -> tuple[Scrape, Scrape] | None:
        """First and last scrape of the last ``seconds``; None for fewer than two."""
        if not self._scrapes:
            return None
        last = self._scrapes[-1]
        start = last.time - seconds - _JITTER_SECONDS
        first = self._scrapes[bisect_left(self._scrapes, start, key=lambda s: s.time)]
        return (first, last) if first is not last else None


def _growth(span: tuple[Scrape, Scrape], name: str, match: Match) -> dict[Series, float]:
    first, last = span
    return {
        series: value - first.totals.get(series, 0.0)
        for series, value in last.totals.items()
        if _matches(series, name, match)
    }


def _matches(series: Series, name: str, match: Match) -> bool:
    return series.name == name and (not match or match.items() <= dict(series.labels).items())
