"""A worker's numbers in memory that outlives it, so that a killed worker loses no count.

The memory is an open file that the supervisor holds and each worker in turn maps: float64 cells
(``observability.layout`` says what each one means), exemplars, rows of bytes about open requests,
and a ring of bytes about ended ones (``observability.byte_ring``). A cell is 8 aligned bytes, so
that a kill leaves its old or its new value. Several cells that must change together, or not at all,
are written in a transaction: it is first written to a journal, and the next worker completes one
that was cut.

One thread writes, the worker's event loop.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import functools
import itertools
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from observability.layout import LedgerLayout

_MAGIC = b"QUIRELG1"
_HEADER_BYTES = 64  # the magic and the layout's fingerprint
_CELL = 8
# Cells that one transaction may change. A request's end changes about 25.
JOURNAL_CELLS = 512
_JOURNAL_AT = _HEADER_BYTES + _CELL  # after the number of cells that it changes
_JOURNAL_BYTES = _CELL * (1 + 2 * JOURNAL_CELLS)
NAME_BYTES = 32  # of an alias
ROW_BYTES = 1024  # of text about one open request
_TEXTS = 2  # of each row: one is read while the other is written
_EXEMPLAR = struct.Struct("<QQdd")  # trace id (high, low), value, Unix time; 0: none
EXEMPLAR_BYTES = _EXEMPLAR.size
_MOMENT = struct.Struct("<d")
_MOMENT_OFFSET = EXEMPLAR_BYTES - _MOMENT.size
_ZEROS = bytes(1 << 20)


class Past(enum.Enum):
    """What a ledger held when it was opened."""

    NOTHING = "nothing"  # this is the server's first worker
    CONTINUED = "continued"  # the numbers of the worker before
    UNKNOWN = "unknown"  # there was a worker before, but its numbers cannot be read
    PRIVATE = "private"  # this worker has no supervisor that keeps its memory


@functools.lru_cache(maxsize=JOURNAL_CELLS)
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"={count}d")


def exemplar_moments(packed: bytes) -> list[float]:
    """Return the Unix time of each; 0 where there is none."""
    return array("d", packed)[3::4].tolist()


def exemplar_at(packed: bytes, number: int) -> tuple[int, float, float]:
    """Return trace id, value and Unix time."""
    high, low, value, moment = _EXEMPLAR.unpack_from(packed, number * EXEMPLAR_BYTES)
    return high << 64 | low, value, moment


class _Places(NamedTuple):
    """Where the parts of a ledger begin, in bytes, and where it ends."""

    cells: int
    exemplars: int
    rows: int
    ring: int
    names: int
    size: int

    @classmethod
    def of(cls, layout: LedgerLayout) -> _Places:
        sizes = (
            _HEADER_BYTES + _JOURNAL_BYTES,
            layout.cells * _CELL,
            layout.exemplars * EXEMPLAR_BYTES,
            layout.open_requests * _TEXTS * ROW_BYTES,
            layout.ring_bytes,
            layout.key_names * NAME_BYTES,
        )
        return cls(*itertools.accumulate(sizes))


def size_of(layout: LedgerLayout) -> int:
    """Return the bytes of a ledger."""
    return _Places.of(layout).size


def _head_of(layout: LedgerLayout) -> bytes:
    return _MAGIC + layout.fingerprint


@contextlib.contextmanager
def file_lock(descriptor: int) -> Iterator[None]:
    """Hold a lock of this process on the file. Workers that inherited the same descriptor exclude
    each other, too."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


class LedgerReader:
    """The numbers of a ledger, which another worker writes. ``descriptor``: of its file, which has
    ``size_of`` the layout or more bytes; it stays open. ``memory``: the file as it is mapped."""

    def __init__(
        self,
        layout: LedgerLayout,
        descriptor: int | None = None,
        *,
        memory: mmap.mmap | None = None,
    ) -> None:
        self.layout = layout
        places = _Places.of(layout)
        self._cells_at, self._exemplars_at = places.cells, places.exemplars
        self._rows_at, self._names_at = places.rows, places.names
        self._head = _head_of(layout)
        if memory is None:
            assert descriptor is not None
            memory = mmap.mmap(descriptor, places.size, prot=mmap.PROT_READ)
        self.memory = memory
        self._everything = memoryview(memory)
        self.cells = self._everything[self._cells_at : self._exemplars_at].cast("d")

    @property
    def is_laid_out(self) -> bool:
        """True if the cells mean what the layout says. A worker that starts may not have written
        them yet, or have found another layout."""
        return self.memory[: len(self._head)] == self._head

    def raw(self, first: int, count: int) -> bytes:
        """Return the bytes of cells, to be compared with earlier ones."""
        start = self._cells_at + first * _CELL
        return self.memory[start : start + count * _CELL]

    def numbers(self, first: int, count: int) -> list[float]:
        """Return the values of cells."""
        values: list[float] = self.cells[first : first + count].tolist()  # type: ignore[assignment]
        return values

    def raw_exemplars(self, first: int, count: int) -> bytes:
        """Return them packed, for ``exemplar_moments`` and ``exemplar_at``."""
        start = self._exemplars_at + first * EXEMPLAR_BYTES
        return self.memory[start : start + count * EXEMPLAR_BYTES]


class WorkerLedger(LedgerReader):
    """``descriptor``: of an open file, empty or left by the worker before; it is closed here.
    None: private memory, which ends with the process. ``shared``: other processes have it mapped,
    and one of them may be writing; before this one writes, it calls ``take_over``. Raises OSError
    if the file cannot be filled or mapped."""

    def __init__(
        self, layout: LedgerLayout, descriptor: int | None = None, *, shared: bool = False
    ) -> None:
        self.past = Past.PRIVATE
        size, head = size_of(layout), _head_of(layout)
        if descriptor is None:
            memory = mmap.mmap(-1, size)
            memory[: len(head)] = head
        else:
            try:
                with file_lock(descriptor):
                    self.past = self._examine(descriptor, head, size)
                    memory = mmap.mmap(descriptor, size)
                    memory[: len(head)] = head  # last: now it may be continued
            finally:
                os.close(descriptor)
        super().__init__(layout, memory=memory)
        self._journaled = self._everything[_HEADER_BYTES:_JOURNAL_AT].cast("d")
        self.ring = self._everything[_Places.of(layout).ring : self._names_at]
        self._pending: dict[int, float] | None = None
        if not shared:
            self.take_over()

    @staticmethod
    def _examine(descriptor: int, head: bytes, size: int) -> Past:
        found = os.fstat(descriptor).st_size
        before = os.pread(descriptor, len(head), 0)
        if found >= size and before == head:
            return Past.CONTINUED
        # A worker that was killed before it had written the header had counted nothing.
        past = Past.UNKNOWN if any(before) else Past.NOTHING
        # Written, not only resized: if memory or the disk is full, this raises, where a store into
        # a hole would kill the process. Never cut: that would kill another worker that reads it.
        for start in range(0, size, len(_ZEROS)):
            chunk = _ZEROS[: size - start]
            if os.pwrite(descriptor, chunk, start) != len(chunk):
                raise OSError("the memory of the metrics could not be filled")
        return past

    def take_over(self) -> None:
        """Complete the transaction during which the writer before was killed, if any."""
        count = int(self._journaled[0])
        if 0 < count <= JOURNAL_CELLS:
            found = _numbers(2 * count).unpack_from(self.memory, _JOURNAL_AT)
            for cell, value in zip(found[:count], found[count:], strict=True):
                self.cells[int(cell)] = value
        self._journaled[0] = 0.0

    # --- cells ----------------------------------------------------------------------------------

    def add(self, cell: int, amount: float) -> None:
        pending = self._pending
        if pending is None:
            self.cells[cell] += amount
        else:
            before = pending.get(cell)
            pending[cell] = (self.cells[cell] if before is None else before) + amount

    def observe(self, bucket: int, total: int, value: float) -> None:
        """Add 1 to one cell and ``value`` to another, as two ``add`` do in more time."""
        pending = self._pending
        if pending is None:
            self.cells[bucket] += 1
            self.cells[total] += value
            return
        counted = pending.get(bucket)
        pending[bucket] = (self.cells[bucket] if counted is None else counted) + 1
        summed = pending.get(total)
        pending[total] = (self.cells[total] if summed is None else summed) + value

    def set(self, cell: int, value: float) -> None:
        if self._pending is None:
            self.cells[cell] = value
        else:
            self._pending[cell] = value

    def __enter__(self) -> WorkerLedger:
        """Begin a transaction: what ``add`` and ``set`` change until its end is changed together at
        its end, or not at all if this process is killed or an exception is raised."""
        if self._pending is not None:
            raise RuntimeError("a transaction is open")
        self._pending = {}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pending, self._pending = self._pending, None
        if kind is not None or not pending:
            return
        if len(pending) <= JOURNAL_CELLS:
            self._commit(pending)
            return
        changes = iter(pending.items())
        while chunk := dict(itertools.islice(changes, JOURNAL_CELLS)):
            self._commit(chunk)

    def _commit(self, chunk: dict[int, float]) -> None:
        """Change these cells. The values are absolute, so that it does not matter how many of them
        had been written when the next worker writes them all."""
        count = len(chunk)
        _numbers(2 * count).pack_into(self.memory, _JOURNAL_AT, *chunk, *chunk.values())
        self._journaled[0] = count  # from here on they change, come what may
        cells = self.cells
        for cell, value in chunk.items():
            cells[cell] = value
        self._journaled[0] = 0.0

    # --- exemplars ------------------------------------------------------------------------------

    def set_exemplar(self, number: int, trace_id: int, value: float, moment: float) -> None:
        """``moment``: Unix time."""
        at = self._exemplars_at + number * EXEMPLAR_BYTES
        # None in between, so that a kill cannot leave one trace id made of two.
        _MOMENT.pack_into(self.memory, at + _MOMENT_OFFSET, 0.0)
        _EXEMPLAR.pack_into(self.memory, at, trace_id >> 64, trace_id & 2**64 - 1, value, 0.0)
        _MOMENT.pack_into(self.memory, at + _MOMENT_OFFSET, moment)

    # --- texts about open requests --------------------------------------------------------------

    def write_text(self, row: int, which: int, text: bytes) -> None:
        """``which`` of the row's two texts. Raises ValueError if it is too long."""
        if len(text) > ROW_BYTES - 2:
            raise ValueError(f"a text of {len(text)} bytes does not fit into a row")
        at = self._rows_at + (row * _TEXTS + which) * ROW_BYTES
        self.memory[at : at + 2 + len(text)] = len(text).to_bytes(2, "little") + text

    def read_text(self, row: int, which: int) -> bytes:
        at = self._rows_at + (row * _TEXTS + which) * ROW_BYTES
        size = int.from_bytes(self.memory[at : at + 2], "little")
        return self.memory[at + 2 : at + 2 + min(size, ROW_BYTES - 2)]

    # --- names of API keys ----------------------------------------------------------------------

    def write_name(self, number: int, name: bytes) -> None:
        """Raises ValueError if it is empty or too long."""
        if not 0 < len(name) <= NAME_BYTES:
            raise ValueError(f"a name of {len(name)} bytes cannot be kept")
        at = self._names_at + number * NAME_BYTES
        self.memory[at + 1 : at + NAME_BYTES] = name[1:].ljust(NAME_BYTES - 1, b"\0")
        self.memory[at] = name[0]  # last: now it is there

    def read_name(self, number: int) -> bytes:
        """Return it; empty if there is none."""
        at = self._names_at + number * NAME_BYTES
        return self.memory[at : at + NAME_BYTES].rstrip(b"\0") if self.memory[at] else b""
