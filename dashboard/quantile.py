"""Quantiles of a histogram's buckets, as PromQL's ``histogram_quantile`` computes them.

The rules are those of Prometheus' documentation of the function: linear interpolation inside a
bucket, the first bucket starting at 0 when its bound is positive, the last finite bound as the
answer when the quantile falls into ``+Inf``, and NaN where there is no observation.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable


def histogram_quantile(quantile: float, buckets: Iterable[tuple[float, float]]) -> float:
    """``buckets``: (upper bound, cumulative count) in any order; the last must be ``inf``.

    Returns the quantile in the bounds' unit, or NaN without observations.
    """
    if not 0 <= quantile <= 1:
        return math.nan if math.isnan(quantile) else math.copysign(math.inf, quantile)
    ordered = _merge(buckets)
    if len(ordered) < 2 or ordered[-1][0] != math.inf:
        return math.nan
    bounds = [bound for bound, _ in ordered]
    counts = _monotonic([count for _, count in ordered])
    total = counts[-1]
    if not total > 0:
        return math.nan

    rank = quantile * total
    position = bisect_left(counts, rank, hi=len(counts) - 1)
    if position == len(counts) - 1:
        return bounds[-2]
    if position == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[position - 1], counts[position - 1]) if position else (0.0, 0.0)
    inside = counts[position] - below
    # Equal counts up to here mean rank 0 in an empty first bucket: 0/0, as in PromQL.
    share = (rank - below) / inside if inside else math.nan
    return start + (bounds[position] - start) * share


def _merge(buckets: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sorted by bound, equal bounds added up (the same histogram from several label sets)."""
    merged: dict[float, float] = {}
    for bound, count in buckets:
        merged[bound] = merged.get(bound, 0.0) + count
    return sorted(merged.items())


def _monotonic(counts: list[float]) -> list[float]:
    """A scrape may catch buckets in the middle of an update; counts must not fall."""
    highest = -math.inf
    return [highest := max(highest, count) for count in counts]
