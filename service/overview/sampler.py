"""Takes the history's sample of each second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from observability.history import HISTORY
from observability.ledger import Past
from observability.metrics import MetricRegistry
from service.overview.history import LastHour
from service.overview.ring import HISTORY_SECONDS, RATES
from service.overview.totals import LATENCIES, Totals
from service.records.recent import weighted_quantiles
from service.telemetry.observed import Observed


class SecondSampler:
    """Call ``sample`` once a second, soon after the second's end by the monotonic clock."""

    def __init__(self, history: LastHour, metrics: MetricRegistry, observed: Observed) -> None:
        self.totals = Totals(metrics)
        self._history = history
        self._observed = observed
        # Without the counts of the worker before, its last totals mean nothing.
        past = metrics.ledger.past
        self._goes_on = history.ring.is_continued and past is Past.CONTINUED
        self._has_others = bool(metrics.workers)
        self._latencies = self.totals.latencies() if self._has_others else []
        self._batches = self.totals.batches()
        self.ended: dict[str, float] = self.totals.ended()  # as of the last sample

    def sample(self, now: float, gauges: Mapping[str, float | None]) -> dict[str, float]:
        """Put the second's row. Return how much each total of ``RATES`` has grown since the last
        sample; empty if that is not known. Seconds that were missed, because the event loop was
        held or there was no worker, share what was counted in them."""
        ring = self._history.ring
        slot, last = math.floor(now), ring.last_slot
        if self._has_others and last:
            self._goes_on = True  # where the worker that led before has stopped
        if self._goes_on and slot <= last:  # the timer was early
            return {}
        self.ended = self.totals.ended()
        totals = self.totals.read(self.ended)
        observed = self._take_observed()
        if not self._goes_on:
            self._goes_on = True
            ring.remember(slot, now, totals)
            return {}
        elapsed = now - ring.last_time
        grown = [
            max(0.0, total - before) for total, before in zip(totals, ring.last_totals, strict=True)
        ]
        rates = {name: growth / elapsed for name, growth in zip(RATES, grown, strict=True)}
        seconds = slot - last
        missed = [rates.get(column.name, math.nan) for column in HISTORY]
        for each in range(max(last + 1, slot - HISTORY_SECONDS + 1), slot):
            ring.put(each, elapsed / seconds, missed)
        known = {**rates, **observed, **gauges}
        row = [_number(known.get(column.name)) for column in HISTORY]
        ring.put(slot, elapsed / seconds, row)
        ring.remember(slot, now, totals)
        return dict(zip(RATES, grown, strict=True))

    def look(self) -> dict[str, float]:
        """Look without putting a row, as another worker does. Return nothing: what has grown is not
        known."""
        self.ended = self.totals.ended()
        self._batches = self.totals.batches()
        self._latencies = self.totals.latencies()
        self._observed.clear()
        return {}

    def _take_observed(self) -> dict[str, float | None]:
        """Return the QUANTILE columns."""
        observed = self._observed
        steps, sequences = self.totals.batches()
        steps_before, sequences_before = self._batches
        self._batches = steps, sequences
        batch = None
        if steps > steps_before:
            batch = (sequences - sequences_before) / (steps - steps_before)
        first_tokens = [(value, 1) for value in observed.first_tokens]
        gaps = list(observed.gaps)
        if self._has_others:
            first_tokens, gaps = self._take_latencies()
        found: dict[str, float | None] = {
            "step_longest": observed.longest_step or None,
            "batch": batch,
            "loop_lag": observed.longest_hold or None,
            **_quantiles("ttft", first_tokens),
            **_quantiles("itl", gaps),
        }
        observed.clear()
        return found

    def _take_latencies(self) -> list[list[tuple[float, int]]]:
        """Return times to first tokens, and gaps, that all workers have observed since the last
        look."""
        before, self._latencies = self._latencies, self.totals.latencies()
        return [
            _grown(metric.buckets, *counts)
            for metric, *counts in zip(LATENCIES, before, self._latencies, strict=True)
        ]


def _grown(
    bounds: Sequence[float], before: Sequence[float], now: Sequence[float]
) -> list[tuple[float, int]]:
    """Return how many observations came to each bucket, with its upper bound (the last has none:
    its lower one)."""
    pairs = zip((*bounds, bounds[-1]), before, now, strict=True)
    return [(bound, round(more - less)) for bound, less, more in pairs if more > less]


def _quantiles(name: str, weighted: list[tuple[float, int]]) -> dict[str, float | None]:
    """Return the quantiles as columns. ``weighted``: values, and how often each occurred."""
    found = weighted_quantiles(sorted(weighted))
    return {f"{name}_p50": found.p50, f"{name}_p95": found.p95, f"{name}_p99": found.p99}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
