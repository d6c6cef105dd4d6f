"""The engines' totals as counters that are right across restarts of workers and engines."""

from __future__ import annotations

import operator
import struct
from dataclasses import dataclass

from engine.messages import EngineCounters
from observability import catalogue
from observability.layout import ENGINE_HEAD, LedgerLayout
from observability.ledger import Past, WorkerLedger
from observability.metrics import MetricRegistry

# The first cells of each engine: the process that sent the last message, the one before it, and 1
# once there was a message.
_IDENTITY, _IDENTITY_BEFORE, _HEARD = range(ENGINE_HEAD)


@dataclass(slots=True)
class _Engine:
    """What this worker knows of an engine. ``counters``: the last ones, if another worker writes
    them. ``is_current``: False while only an earlier process is heard than another worker has
    heard."""

    first_cell: int
    before: memoryview[float]
    own: memoryview[float]
    identity: int | None = None
    counters: EngineCounters | None = None
    is_current: bool = True


class EngineTotals:
    """An engine's process reports totals since its start. The ledger keeps, of each engine, the
    last ones of the process that was last heard, with its identity, and the sum of all processes
    before it: a counter is that sum plus the process's own total, of all engines.

    All workers of a server share that memory, and the one that leads writes. When it dies, another
    continues: the same process's next message brings the counters up to date, and another process's
    totals are added to what there was. Counters are not shown before their values are known. If the
    memory of the worker before cannot be read, they begin at 0 with the engine's first message.
    """

    def __init__(self, metrics: MetricRegistry, *, leads: bool = True) -> None:
        ledger, layout = metrics.engine_ledger, metrics.engine_ledger.layout
        self.leads = False
        self._ledger = ledger
        self._fields = layout.engine_fields
        self._engines = []
        count = len(self._fields)
        for first in _firsts(layout):
            before = first + ENGINE_HEAD
            own = before + count
            self._engines.append(
                _Engine(first, ledger.cells[before:own], ledger.cells[own : own + count])
            )
        self._read = operator.attrgetter(*self._fields)
        self._pack = struct.Struct(f"={count}d").pack_into
        self._totals = memoryview(bytearray(8 * count)).cast("d")
        model = metrics.models[0]
        self._counters = [
            metrics[metric].labels(*filter(None, (model, total.value)))
            for metric in catalogue.METRICS
            for total in metric.totals
        ]
        self._begins_at_zero = ledger.past is Past.UNKNOWN
        self._was_known = ledger.past in (Past.NOTHING, Past.CONTINUED)
        if not self._is_known:
            for counter in self._counters:
                counter.hide()
        if leads:
            self.lead()

    @property
    def _is_known(self) -> bool:
        cells = self._ledger.cells
        return self._was_known or any(cells[one.first_cell + _HEARD] for one in self._engines)

    def lead(self) -> None:
        """Write from now on: no other worker does any more."""
        if self.leads:
            return
        self.leads = True
        self._ledger.take_over()
        for one in self._engines:
            if one.identity is not None:
                self._begin(one, one.identity)
            if one.counters is not None and one.is_current:
                self._write(one, one.counters)

    def engine_is(self, identity: int, engine: int = 0) -> None:
        """Record which process sends the messages of an engine from now on."""
        one = self._engines[engine]
        one.identity, one.counters = identity, None
        if self.leads:
            self._begin(one, identity)

    def _begin(self, one: _Engine, identity: int) -> None:
        cells, first = self._ledger.cells, one.first_cell
        known = cells[first + _IDENTITY]
        # The worker that led before may have heard a process that this one has not reached yet.
        one.is_current = identity == known or identity != cells[first + _IDENTITY_BEFORE]
        if identity == known or not one.is_current:
            return
        with self._ledger:  # or an engine's total could be counted twice
            self._ledger.set(first + _IDENTITY_BEFORE, known)
            self._ledger.set(first + _IDENTITY, identity)
            self._add_up(one)

    def _add_up(self, one: _Engine) -> None:
        """Add the process's totals to those of the processes before it."""
        at, count = one.first_cell + ENGINE_HEAD, len(self._fields)
        for number, (before, own) in enumerate(zip(one.before, one.own, strict=True)):
            self._ledger.set(at + number, before + own)
            self._ledger.set(at + count + number, 0.0)

    def heard(self, counters: EngineCounters, engine: int = 0) -> None:
        """Record an engine's totals. Called for each step."""
        one = self._engines[engine]
        if not self.leads:
            one.counters = counters
        elif one.is_current:
            self._write(one, counters)

    def _write(self, one: _Engine, counters: EngineCounters) -> None:
        totals = self._totals
        self._pack(totals, 0, *self._read(counters))
        if not self._ledger.cells[one.first_cell + _HEARD]:
            self._begin_to_count(one, totals)
        # A kill may cut this: each total is right by itself, and the next message has them all.
        one.own[:] = totals

    def _begin_to_count(self, one: _Engine, totals: memoryview[float]) -> None:
        with self._ledger:
            if self._begins_at_zero:
                at, count = one.first_cell + ENGINE_HEAD, len(self._fields)
                for number, total in enumerate(totals):
                    self._ledger.set(at + number, -total)
                    self._ledger.set(at + count + number, total)
            self._ledger.set(one.first_cell + _HEARD, 1.0)

    def publish(self) -> None:
        """Set the counters for a scrape."""
        if self._is_known:
            for counter, field in zip(self._counters, self._fields, strict=True):
                counter.continue_at(engine_total(self._ledger, field))


def engine_total(ledger: WorkerLedger, field: str) -> float:
    """Return a total of all engines, since the start of the server. ``ledger``: the engines'."""
    layout = ledger.layout
    before = ENGINE_HEAD + layout.engine_fields.index(field)
    own = before + len(layout.engine_fields)
    return sum(
        ledger.cells[first + before] + ledger.cells[first + own] for first in _firsts(layout)
    )


def engine_identities(ledger: WorkerLedger) -> tuple[int, ...]:
    """Return which process of each engine was heard last; 0 if none was."""
    return tuple(int(ledger.cells[first + _IDENTITY]) for first in _firsts(ledger.layout))


def _firsts(layout: LedgerLayout) -> list[int]:
    """Return the first cell of each engine."""
    return [layout.engine_cells + number * layout.engine_width for number in range(layout.engines)]
