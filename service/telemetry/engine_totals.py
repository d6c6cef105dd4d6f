"""The engine's totals as counters that are right across restarts of worker and engine."""

from __future__ import annotations

import operator
import struct

from engine.messages import EngineCounters
from observability import catalogue
from observability.ledger import Past
from observability.metrics import MetricRegistry


class EngineTotals:
    """An engine reports totals since its start. The ledger keeps the last ones of the engine that
    was last heard, with its identity, and the sum of all engines before it: a counter is that sum
    plus the engine's own total.

    So a new worker continues where the last one stopped: the same engine's next message brings the
    counters up to date, and another engine's totals are added to what there was. Counters are not
    shown before their values are known. If the ledger of the worker before cannot be read, they
    begin at 0 with the engine's first message.
    """

    def __init__(self, metrics: MetricRegistry) -> None:
        ledger, layout = metrics.ledger, metrics.ledger.layout
        self._ledger = ledger
        count = len(layout.engine_fields)
        self._identity_cell = layout.engine_cells
        self._before_cell = self._identity_cell + 1
        self._own_cell = self._before_cell + count
        self._before = ledger.cells[self._before_cell : self._own_cell]
        self._own = ledger.cells[self._own_cell : self._own_cell + count]
        self._read = operator.attrgetter(*layout.engine_fields)
        self._pack = struct.Struct(f"={count}d").pack_into
        self._totals = memoryview(bytearray(8 * count)).cast("d")
        model = metrics.models[0]
        self._counters = [
            metrics[metric].labels(*filter(None, (model, total.value)))
            for metric in catalogue.METRICS
            for total in metric.totals
        ]
        self._is_known = ledger.past in (Past.NOTHING, Past.CONTINUED)
        self._begins_at_zero = ledger.past is Past.UNKNOWN
        if not self._is_known:
            for counter in self._counters:
                counter.hide()

    def engine_is(self, identity: int) -> None:
        """Record which engine sends the messages from now on."""
        known = self._ledger.cells[self._identity_cell]
        if identity == known:
            return
        with self._ledger:  # or an engine's total could be counted twice
            self._ledger.set(self._identity_cell, identity)
            self._add_up()

    def _add_up(self) -> None:
        """Add the engine's totals to those of the engines before it."""
        for number, (before, own) in enumerate(zip(self._before, self._own, strict=True)):
            self._ledger.set(self._before_cell + number, before + own)
            self._ledger.set(self._own_cell + number, 0.0)

    def heard(self, counters: EngineCounters) -> None:
        """Record the engine's totals. Called for each step."""
        totals = self._totals
        self._pack(totals, 0, *self._read(counters))
        if self._begins_at_zero:
            self._begins_at_zero = False
            with self._ledger:
                for number, total in enumerate(totals):
                    self._ledger.set(self._before_cell + number, -total)
                    self._ledger.set(self._own_cell + number, total)
        # A kill may cut this: each total is right by itself, and the next message has them all.
        self._own[:] = totals
        self._is_known = True

    def publish(self) -> None:
        """Set the counters for a scrape."""
        if self._is_known:
            for counter, before, own in zip(self._counters, self._before, self._own, strict=True):
                counter.continue_at(before + own)
