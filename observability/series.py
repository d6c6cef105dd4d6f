"""The series of a metric: what code increments, sets and observes, in the cells of a ledger."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from observability.ledger import WorkerLedger

# Of a series that has no value at present, and is then not on the page.
ABSENT = math.nan


class CounterSeries:
    __slots__ = ("_cell", "_ledger")

    def __init__(self, ledger: WorkerLedger, cell: int) -> None:
        self._ledger = ledger
        self._cell = cell

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a counter cannot fall")
        self._ledger.add(self._cell, amount)

    def continue_at(self, total: float) -> None:
        """Set the counter to a total that is counted elsewhere and survives there."""
        self._ledger.set(self._cell, total)

    def hide(self) -> None:
        """Keep the series off the page until ``continue_at``: its value is not known."""
        self._ledger.set(self._cell, ABSENT)


class GaugeSeries:
    __slots__ = ("_cell", "_ledger", "_read")

    def __init__(self, ledger: WorkerLedger, cell: int) -> None:
        self._ledger = ledger
        self._cell = cell
        self._read: Callable[[], float | None] | None = None

    @property
    def value(self) -> float:
        return self._ledger.cells[self._cell]

    def set(self, value: float | None) -> None:
        """None: the series is not on the page until it has a value again."""
        self._ledger.set(self._cell, ABSENT if value is None else value)

    def inc(self, amount: float = 1.0) -> None:
        self._ledger.add(self._cell, amount)

    def dec(self, amount: float = 1.0) -> None:
        self._ledger.add(self._cell, -amount)

    def set_function(self, read: Callable[[], float | None]) -> None:
        """Call ``read`` for each page and set what it returns."""
        self._read = read

    def refresh(self) -> None:
        if self._read is not None:
            self.set(self._read())


class HistogramSeries:
    """Counts by bucket and their sum. ``exemplars``: number of the first bucket's exemplar."""

    __slots__ = ("_bounds", "_exemplars", "_first", "_ledger", "_sum")

    def __init__(
        self, ledger: WorkerLedger, first: int, bounds: Sequence[float], exemplars: int
    ) -> None:
        self._ledger = ledger
        self._bounds = tuple(bounds)
        self._first = first
        self._sum = first + len(bounds) + 1
        self._exemplars = exemplars

    def observe(self, value: float, trace_id: int | None = None) -> None:
        """``trace_id``: of a trace that is exported, kept as the bucket's exemplar."""
        bucket = bisect_left(self._bounds, value)
        self._ledger.observe(self._first + bucket, self._sum, value)
        if trace_id is not None:
            self._ledger.set_exemplar(self._exemplars + bucket, trace_id, value, time.time())

    def set_exemplar(self, value: float, trace_id: int) -> None:
        """Make the trace the exemplar of a value that was observed without one."""
        bucket = bisect_left(self._bounds, value)
        self._ledger.set_exemplar(self._exemplars + bucket, trace_id, value, time.time())


class BulkHistogramSeries:
    """One for what is observed at each engine step or token, or all the time: without exemplars,
    and outside of transactions, so that a kill between its two stores leaves a sum that lacks the
    last observation."""

    __slots__ = ("_bounds", "_cells", "_sum")

    def __init__(self, ledger: WorkerLedger, first: int, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._sum = len(bounds) + 1
        self._cells = ledger.cells[first : first + self._sum + 1]

    @property
    def total(self) -> float:
        """The sum of all observations."""
        return self._cells[self._sum]

    def observe(self, value: float, times: int = 1) -> None:
        """``times``: how many observations had this same value."""
        cells = self._cells
        cells[bisect_left(self._bounds, value)] += times
        cells[self._sum] += value * times


class InfoSeries:
    """Facts as labels, kept by no ledger: each worker sets them again."""

    __slots__ = ("facts",)

    def __init__(self) -> None:
        self.facts: Mapping[str, str] | None = None

    def info(self, facts: Mapping[str, str]) -> None:
        self.facts = dict(facts)
