"""An hour of seconds in memory that can outlive the worker: the columns of
``observability.history``, when each second was sampled, and what the next sample needs.

Each column has a slot for each second, by the machine's monotonic clock, so that a worker finds the
slots of the one before in their places. A column is contiguous: a chart reads a few of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Sequence

from observability.history import HISTORY, Sampled
from observability.ledger import file_lock

HISTORY_SECONDS = 3600
MARKS_BYTES = 64 * 1024

_MAGIC = b"QUIREHS1"
_HEADER_BYTES = 64
_NUMBER = 8
# Numbers before the columns; after them, what the rates had counted at the last sample.
_STARTS, _ENGINE_RESTARTS, _LAST_SLOT, _LAST_TIME, _TOTALS_AT = range(5)

RATES = tuple(column.name for column in HISTORY if column.sampled is Sampled.RATE)
COLUMN_NUMBERS = {column.name: number for number, column in enumerate(HISTORY)}
_ZEROS = bytes(1 << 20)
_START = struct.Struct("=d")


def _fingerprint() -> bytes:
    columns = [(column.name, column.sampled.name) for column in HISTORY]
    return hashlib.sha256(repr((columns, HISTORY_SECONDS, MARKS_BYTES)).encode()).digest()


class Ring:
    """``descriptor``: of an open file, empty or left by the worker before; the ring closes it.
    None: private memory. ``workers``: how many use it at once; all read, and the one that leads
    writes. Raises OSError if the file cannot be filled or mapped."""

    def __init__(self, descriptor: int | None = None, *, workers: int = 1) -> None:
        head = _MAGIC + _fingerprint()
        head_numbers = _TOTALS_AT + len(RATES)
        numbers = head_numbers + HISTORY_SECONDS * (2 + len(HISTORY))
        self._marks_at = _HEADER_BYTES + _NUMBER * numbers
        size = self._marks_at + MARKS_BYTES
        self.is_continued = False
        self.workers = workers
        self._descriptor: int | None = None
        if descriptor is None:
            self._memory = mmap.mmap(-1, size)
            self._count_start()
        else:
            try:
                with file_lock(descriptor):
                    self.is_continued = self._examine(descriptor, head, size)
                    self._memory = mmap.mmap(descriptor, size)
                    self._memory[: len(head)] = head
                    self._count_start()
            finally:
                if workers > 1:
                    self._descriptor = descriptor
                else:
                    os.close(descriptor)
        everything = memoryview(self._memory)
        self._numbers = everything[_HEADER_BYTES : self._marks_at].cast("d")
        self._slots = self._numbers[head_numbers : head_numbers + HISTORY_SECONDS]
        self._elapsed = self._numbers[
            head_numbers + HISTORY_SECONDS : head_numbers + 2 * HISTORY_SECONDS
        ]
        self._values = self._numbers[head_numbers + 2 * HISTORY_SECONDS :]

    def _count_start(self) -> None:
        at = _HEADER_BYTES + _STARTS * _NUMBER
        (starts,) = _START.unpack_from(self._memory, at)
        _START.pack_into(self._memory, at, starts + 1)

    @staticmethod
    def _examine(descriptor: int, head: bytes, size: int) -> bool:
        if os.fstat(descriptor).st_size == size and os.pread(descriptor, len(head), 0) == head:
            return True
        os.ftruncate(descriptor, 0)
        # Written, not only resized: a store into a hole kills the process if memory is full.
        for start in range(0, size, len(_ZEROS)):
            chunk = _ZEROS[: size - start]
            if os.pwrite(descriptor, chunk, start) != len(chunk):
                raise OSError("the history's memory could not be allocated")
        return False

    # --- the sampler's state --------------------------------------------------------------------

    @property
    def starts(self) -> int:
        """The number of workers that have used this memory, with this one."""
        return int(self._numbers[_STARTS])

    @property
    def restarts(self) -> int:
        """The number of workers that came after one that had died."""
        return max(0, self.starts - self.workers)

    @property
    def is_restarted(self) -> bool:
        """True if one of them was this worker, or has come since."""
        return self.is_continued and self.restarts > 0

    @property
    def engine_restarts(self) -> int:
        return int(self._numbers[_ENGINE_RESTARTS])

    def count_engine_restart(self) -> None:
        self._numbers[_ENGINE_RESTARTS] += 1

    @property
    def last_slot(self) -> int:
        """The second that was sampled last; 0 before the first."""
        return int(self._numbers[_LAST_SLOT])

    @property
    def last_time(self) -> float:
        """When that was, in monotonic seconds."""
        return self._numbers[_LAST_TIME]

    @property
    def last_totals(self) -> Sequence[float]:
        """What the ``RATES`` had counted then."""
        return self._numbers[_TOTALS_AT : _TOTALS_AT + len(RATES)].tolist()

    def remember(self, slot: int, now: float, totals: Iterable[float]) -> None:
        for number, total in enumerate(totals):
            self._numbers[_TOTALS_AT + number] = total
        self._numbers[_LAST_TIME] = now
        self._numbers[_LAST_SLOT] = slot

    # --- samples --------------------------------------------------------------------------------

    def put(self, slot: int, elapsed: float, values: Sequence[float]) -> None:
        """Set a second's values, NaN where there is none. ``elapsed``: how long it really was."""
        at = slot % HISTORY_SECONDS
        cells = self._values
        for value in values:
            cells[at] = value
            at += HISTORY_SECONDS
        at = slot % HISTORY_SECONDS
        self._elapsed[at] = elapsed
        self._slots[at] = slot

    def amend(self, slot: int, number: int, value: float) -> None:
        """Set one column of a second that was sampled."""
        self._values[number * HISTORY_SECONDS + slot % HISTORY_SECONDS] = value

    def row(self, slot: int) -> list[float] | None:
        """Return the values of a second; None if it was not sampled."""
        at = slot % HISTORY_SECONDS
        if not slot or self._slots[at] != slot:  # a slot is 0 before it is used
            return None
        return list(self._values[at::HISTORY_SECONDS])

    def elapsed(self, first: int, count: int) -> list[float]:
        """Return how long each of ``count`` seconds from slot ``first`` was, 0 for those that were
        not sampled."""
        slots, lengths = (
            self._read(self._slots, first, count),
            self._read(self._elapsed, first, count),
        )
        return [
            length if found == wanted else 0.0
            for wanted, (found, length) in enumerate(zip(slots, lengths, strict=True), first)
        ]

    def column(self, number: int, first: int, count: int) -> list[float]:
        """Return a column's values of ``count`` seconds from slot ``first``. Those of seconds that
        were not sampled mean nothing: see ``elapsed``."""
        start = number * HISTORY_SECONDS
        return self._read(self._values[start : start + HISTORY_SECONDS], first, count)

    @staticmethod
    def _read(column: memoryview[float], first: int, count: int) -> list[float]:
        if count > HISTORY_SECONDS:
            raise ValueError(f"{count} seconds; the ring has {HISTORY_SECONDS}")
        at = first % HISTORY_SECONDS
        rest = count - (HISTORY_SECONDS - at)
        found = list(column[at : at + count])
        return found + list(column[:rest]) if rest > 0 else found

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """While in the context, no other worker is."""
        if self._descriptor is None:
            return contextlib.nullcontext()
        return file_lock(self._descriptor)

    # --- marks ----------------------------------------------------------------------------------

    def write_marks(self, text: bytes) -> None:
        """Raises ValueError if it is too long."""
        if len(text) > MARKS_BYTES - 4:
            raise ValueError(f"marks of {len(text)} bytes do not fit")
        at = self._marks_at
        self._memory[at : at + 4 + len(text)] = len(text).to_bytes(4, "little") + text

    def read_marks(self) -> bytes:
        at = self._marks_at
        size = int.from_bytes(self._memory[at : at + 4], "little")
        return self._memory[at + 4 : at + 4 + min(size, MARKS_BYTES - 4)]
