"""The last hour by the second, and what happened in it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence

import msgspec

from observability.admin_api import Mark, Series
from observability.history import HISTORY, Coarse, Column
from service.overview.ring import COLUMN_NUMBERS, HISTORY_SECONDS, Ring
from service.turns import Pace

MAX_VALUES = 40_000  # of one series answer: a longer step is used where there would be more
MAX_MARKS = 200
MAX_MARK_CHARS = 200
_PIECE_SECONDS = 900  # of a column, read at once, while the event loop waits

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Mark])


class UnknownColumnError(ValueError):
    """The history has no column of this name."""


class LastHour:
    """``ring``: its memory. ``now`` and ``wall``: monotonic seconds, and Unix time."""

    def __init__(
        self,
        ring: Ring,
        *,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.ring = ring
        self._now = now
        self._wall = wall
        self._marks: list[Mark] = []
        if ring.is_continued:
            self._read_marks()

    # --- marks ----------------------------------------------------------------------------------

    def mark(self, kind: str, text: str) -> None:
        """Keep what charts are to show at this moment. ``kind``: one word, such as "restart"."""
        with self.ring.exclusive():
            if self.ring.workers > 1:
                self._read_marks()
            self._marks.append(Mark(self._wall(), kind, text[:MAX_MARK_CHARS]))
            self._write_marks()

    def _read_marks(self) -> None:
        # If not: a worker was killed while it wrote them, or is writing them now.
        with contextlib.suppress(msgspec.DecodeError):
            self._marks = _decoder.decode(self.ring.read_marks())

    def _write_marks(self) -> None:
        del self._marks[:-MAX_MARKS]
        encoded = _encoder.encode(self._marks)
        while True:
            try:
                self.ring.write_marks(encoded)
                return
            except ValueError:
                del self._marks[: len(self._marks) // 4 + 1]
                encoded = _encoder.encode(self._marks)

    def marks(self, begin: float, end: float) -> tuple[Mark, ...]:
        """Return those of a time, in Unix seconds."""
        if self.ring.workers > 1:
            self._read_marks()
        return tuple(mark for mark in self._marks if begin <= mark.time <= end)

    # --- samples --------------------------------------------------------------------------------

    def newest(self) -> dict[str, float | None] | None:
        """Return the last second by column; None before the first."""
        row = self.ring.row(self.ring.last_slot)
        if row is None:
            return None
        return {column.name: _none(value) for column, value in zip(HISTORY, row, strict=True)}

    def values(self, name: str, seconds: int) -> list[float]:
        """Return a column's values of the last seconds, those that there are, oldest first."""
        number = COLUMN_NUMBERS[name]
        first = self.ring.last_slot - seconds + 1
        lengths = self.ring.elapsed(first, seconds)
        found = self.ring.column(number, first, seconds)
        return [
            value
            for value, length in zip(found, lengths, strict=True)
            if length and not math.isnan(value)
        ]

    def rate(self, name: str, seconds: int) -> float:
        """Return the mean of a RATE column over the last seconds."""
        first = self.ring.last_slot - seconds + 1
        lengths = self.ring.elapsed(first, seconds)
        found = self.ring.column(COLUMN_NUMBERS[name], first, seconds)
        return _mean(found, lengths) or 0.0

    async def series(
        self,
        names: Sequence[str] = (),
        begin: float | None = None,
        end: float | None = None,
        step: float = 1.0,
    ) -> Series:
        """Return the columns (default: all) from ``begin`` to ``end`` (Unix seconds; default: the
        last hour) in steps of ``step`` seconds. Steps begin at multiples of themselves, by the
        machine's clock, so that a later answer has the same steps. If the answer would have more
        than ``MAX_VALUES`` values, its step is longer.

        Raises UnknownColumnError.
        """
        columns = [self._column(name) for name in dict.fromkeys(names)] or list(HISTORY)
        offset = self._wall() - self._now()
        last = self.ring.last_slot
        first = last - HISTORY_SECONDS + 1
        if begin is not None and begin > first + offset:
            first = math.floor(begin - offset)
        if end is not None and end < last + offset:
            last = math.floor(end - offset)
        each = _step(step, max(1, last - first + 1) * len(columns))
        first -= first % each
        steps = max(0, -(-(last + 1 - first) // each))
        oldest = self.ring.last_slot - HISTORY_SECONDS + 1
        values: dict[str, tuple[float | None, ...]] = {}
        pace = Pace()
        lengths = self._lengths(first, steps * each, oldest)
        await pace.next()
        piece = max(1, _PIECE_SECONDS // each) * each
        for column in columns:
            found: list[float | None] = []
            for at in range(0, len(lengths), piece):
                part = lengths[at : at + piece]
                found += self._aggregated(column, first + at, each, part)
                await pace.rest()
            values[column.name] = tuple(found)
        start = first + offset
        return Series(start, each, values, self.marks(start, start + steps * each))

    def _lengths(self, first: int, count: int, oldest: int) -> list[float]:
        """Return how long each second was, 0 where there is no sample. There may be more seconds
        than the ring has: a step may begin before its oldest and end after its newest."""
        before = max(0, min(count, oldest - first))
        inside = min(count - before, HISTORY_SECONDS)
        lengths = self.ring.elapsed(first + before, inside) if inside > 0 else []
        return [0.0] * before + lengths + [0.0] * (count - before - len(lengths))

    def _aggregated(
        self, column: Column, first: int, each: int, lengths: list[float]
    ) -> tuple[float | None, ...]:
        count = len(lengths)
        oldest = self.ring.last_slot - HISTORY_SECONDS + 1
        before = max(0, min(count, oldest - first))
        inside = max(0, min(count - before, HISTORY_SECONDS))
        number = COLUMN_NUMBERS[column.name]
        found = self.ring.column(number, first + before, inside) if inside else []
        found = [math.nan] * before + found + [math.nan] * (count - before - inside)
        if each == 1:
            return tuple(
                value if length and not math.isnan(value) else None
                for value, length in zip(found, lengths, strict=True)
            )
        aggregate = _AGGREGATES[column.coarse]
        return tuple(
            aggregate(found[at : at + each], lengths[at : at + each])
            for at in range(0, count, each)
        )

    @staticmethod
    def _column(name: str) -> Column:
        number = COLUMN_NUMBERS.get(name)
        if number is None:
            known = ", ".join(COLUMN_NUMBERS)
            raise UnknownColumnError(f"There is no series {name[:64]!r}; there are {known}.")
        return HISTORY[number]


def _step(step: float, values: int) -> int:
    longest = -(-values // MAX_VALUES)
    return min(HISTORY_SECONDS, max(1, math.ceil(step), longest))


def _none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _present(values: list[float], lengths: list[float]) -> list[float]:
    return [
        value
        for value, length in zip(values, lengths, strict=True)
        if length and not math.isnan(value)
    ]


def _mean(values: list[float], lengths: list[float]) -> float | None:
    """Weighted with the seconds' lengths: times their sum, it is what was counted in them."""
    total = weight = 0.0
    for value, length in zip(values, lengths, strict=True):
        if length and not math.isnan(value):
            total += value * length
            weight += length
    return total / weight if weight else None


def _max(values: list[float], lengths: list[float]) -> float | None:
    return max(_present(values, lengths), default=None)


def _min(values: list[float], lengths: list[float]) -> float | None:
    return min(_present(values, lengths), default=None)


def _last(values: list[float], lengths: list[float]) -> float | None:
    present = _present(values, lengths)
    return present[-1] if present else None


_AGGREGATES = {Coarse.MEAN: _mean, Coarse.MAX: _max, Coarse.MIN: _min, Coarse.LAST: _last}
