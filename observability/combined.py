"""Combines the numbers of several workers, so that a scrape of any of them shows the same.

Each worker writes its own ledger, which the others map to read. Nothing is lost when a worker is
killed: its ledger still counts, and the next worker continues it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from observability.layout import LedgerLayout
from observability.ledger import (
    EXEMPLAR_BYTES,
    LedgerReader,
    WorkerLedger,
    exemplar_moments,
    size_of,
)
from observability.metric_kinds import Combined


@dataclass(frozen=True, slots=True)
class Shared:
    """What the workers of a server share. ``ledgers``: descriptors of those of the other workers,
    whose numbers a page adds. ``engines``: how many there are; ``engine_ledger``: descriptor of the
    memory with their totals, None: this worker's own. ``pids``: finds the process ids of all
    workers, by index; None: there are no others."""

    ledgers: Sequence[int] = ()
    engines: int = 1
    engine_ledger: int | None = None
    pids: Callable[[], Mapping[int, int]] | None = None


NOTHING_SHARED = Shared()


class Numbers(Protocol):
    """Numbers in the cells of a layout."""

    def numbers(self, first: int, count: int) -> list[float]:
        """Return the values of cells."""

    def raw(self, first: int, count: int) -> bytes:
        """Return bytes that differ if one of these cells has changed."""

    def raw_exemplars(self, first: int, count: int) -> bytes:
        """Return exemplars packed, as ``WorkerLedger`` does."""


class OtherLedger:
    """The ledger of another worker, which may not exist yet. ``descriptor``: of its file."""

    def __init__(self, layout: LedgerLayout, descriptor: int) -> None:
        self._layout = layout
        self._descriptor = descriptor
        self._reader: LedgerReader | None = None

    def find(self) -> LedgerReader | None:
        """Return the ledger; None if it cannot be read at present."""
        if self._reader is None:
            if os.fstat(self._descriptor).st_size < size_of(self._layout):
                return None
            self._reader = LedgerReader(self._layout, self._descriptor)
        return self._reader if self._reader.is_laid_out else None


class CombinedNumbers:
    """``kind``: how the workers' values make one; not ANY. ``own``: of this worker. ``readers``:
    those of the others that can be read, each time it is called."""

    def __init__(
        self,
        kind: Combined,
        own: WorkerLedger,
        readers: Callable[[], Sequence[LedgerReader]],
    ) -> None:
        self._combine = _added if kind is Combined.SUM else _largest
        self._own = own
        self._readers = readers

    def _all(self) -> list[LedgerReader]:
        return [self._own, *self._readers()]

    def numbers(self, first: int, count: int) -> list[float]:
        columns = [ledger.numbers(first, count) for ledger in self._all()]
        return list(map(self._combine, zip(*columns, strict=True)))

    def raw(self, first: int, count: int) -> bytes:
        return b"".join([ledger.raw(first, count) for ledger in self._all()])

    def raw_exemplars(self, first: int, count: int) -> bytes:
        """Return the newest of each."""
        found = [packed for one in self._all() if any(packed := one.raw_exemplars(first, count))]
        if not found:
            return bytes(count * EXEMPLAR_BYTES)
        columns = zip(*map(exemplar_moments, found), strict=True)
        newest = [max(range(len(found)), key=moments.__getitem__) for moments in columns]
        return b"".join(
            found[which][number * EXEMPLAR_BYTES : (number + 1) * EXEMPLAR_BYTES]
            for number, which in enumerate(newest)
        )


def _added(values: Iterable[float]) -> float:
    """Add up the values that are known."""
    values = tuple(values)
    total = sum(values)
    if total == total:
        return total
    known = [value for value in values if value == value]
    return sum(known) if known else math.nan


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if value == value), default=math.nan)


class WorkerNumbers:
    """All workers' numbers, by how a metric combines them. ``descriptors``: of the ledgers of the
    other workers. Without any, these are the worker's own."""

    def __init__(self, own: WorkerLedger, descriptors: Sequence[int] = ()) -> None:
        self._others = [OtherLedger(own.layout, descriptor) for descriptor in descriptors]
        self._readers: list[LedgerReader] = []
        self._by_kind: dict[Combined, Numbers] = dict.fromkeys(Combined, own)
        if descriptors:
            for kind in (Combined.SUM, Combined.MAX):
                self._by_kind[kind] = CombinedNumbers(kind, own, lambda: self._readers)

    def __bool__(self) -> bool:
        """True if there are others."""
        return bool(self._others)

    def __getitem__(self, kind: Combined) -> Numbers:
        return self._by_kind[kind]

    def look(self) -> None:
        """Find the ledgers that can be read now. Call it before a page."""
        if self._others:
            self._readers = [found for one in self._others if (found := one.find()) is not None]
