"""The memory in which all API workers of a server count what tenants use and have open, and its
lock.

The memory is an open file that the supervisor holds. Cells are 8 aligned bytes, so that a kill
leaves a cell's old or its new value. One lock guards them all, a record lock: the kernel releases
it when its holder dies, and workers that inherited the same descriptor still exclude each other. It
is held for microseconds, and the wait for it is bounded: a worker that is stopped while it holds
the lock makes counts inexact until it continues, but does not stop the others.

Each worker has its own column, for what must be taken back if it dies. It holds a lock on the
column as long as it lives, which is how the others know.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import secrets
import time
from collections.abc import Callable

from observability.logging import get_logger
from service.tenants.places import PLACES_CELLS, SharedPlaces
from service.tenants.tenant_cells import (
    ALIAS_BYTES,
    ALIAS_CELLS,
    CELL_BYTES,
    DAY,
    LAST_DAY,
    LAST_USED,
    MOST_WORKERS,
    TENANT_CELLS,
    USED,
    TenantCells,
)

MOST_TENANTS = 10_240  # of 1,672 bytes each; a keys file has fewer

# Cells of the file's head.
_DIRTY = 0  # the number of the tenant, from 1, that is being changed
_TURNS = 1  # how often the lock was released
_IDENTITY = 2  # a random number, by which other replicas know this server
_REUSED = 3  # how often a slot was given to another tenant
_TAKEN = 4  # one cell for each worker
_HEAD_CELLS = _TAKEN + MOST_WORKERS

_PLACES = _HEAD_CELLS + MOST_TENANTS * TENANT_CELLS  # the first of their cells
_SIZE = (_PLACES + PLACES_CELLS) * CELL_BYTES

# What is locked: the first byte guards the cells, each further one is a worker's column.
_MUTEX = 0
_COLUMNS = 1

# After a search without success, which takes 10 ms, none is made for so long.
_FULL_SECONDS = 1.0

_SPINS = 20
_SHORT_SLEEP = 50e-6
# A holder that the machine does not let run for so long is taken for stopped,
_PATIENCE_SECONDS = 0.25
# and for so long the others do not wait again.
_STUCK_SECONDS = 1.0

_FULL = f"the limits of {MOST_TENANTS} keys are in use"

_log = get_logger()


class LimitMemoryFullError(RuntimeError):
    """There are more tenants with limits, or more workers, than there is room for."""


class LimitMemory:
    """``descriptor``: of the file; None: private memory, for a worker without a supervisor.
    ``clock`` and ``wall``: the monotonic time, and the calendar's. ``is_stored``: whether what a
    tenant has used on a day (since 1970) is known elsewhere, so that its cells can be given to
    another. Raises OSError or LimitMemoryFullError."""

    def __init__(
        self,
        descriptor: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        is_stored: Callable[[str, int, int], bool] = lambda alias, day, tokens: False,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._is_stored = is_stored
        self._full_until = 0.0
        self._descriptor = descriptor = -1 if descriptor is None else descriptor
        self._stuck_until = 0.0
        self.inexact = 0  # how often the lock was not to be had
        held = self._acquire(lambda: 0)
        try:
            _fill(descriptor)
            self._memory = mmap.mmap(descriptor, _SIZE)
            self._cells: memoryview[int] = memoryview(self._memory).cast("q")
            self._slots: dict[bytes, int] = {}  # by name: those of the first ``_seen``
            self._seen = self._reused = self._next_idle = 0
            self._tenants: dict[str, tuple[int, TenantCells]] = {}  # with the slot
            self._lock = _Lock(self)
            if not self._cells[_IDENTITY]:
                self._cells[_IDENTITY] = secrets.randbits(62) | 1
            self.places = SharedPlaces(self._cells[_PLACES:])
            self._column = 0
            self._column = self.places.column = self._take_column()
        finally:
            if held:
                self._unlock(_MUTEX)

    def lock(self) -> _Lock:
        """Return the lock for a ``with`` block. If it is not to be had, the block runs without."""
        return self._lock

    def hold(self) -> bool:
        """Acquire the lock if it is to be had."""
        held = self._try_lock(_MUTEX) or self._acquire(lambda: self._cells[_TURNS])
        if held and (dirty := self._cells[_DIRTY]):  # a worker was killed in the middle of this
            self._tenant(dirty - 1).add_up()
        return held

    def release(self) -> None:
        self._cells[_DIRTY] = 0
        self._cells[_TURNS] += 1
        self._unlock(_MUTEX)

    # --- tenants --------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The server's, the same in all its workers."""
        return f"{self._cells[_IDENTITY]:016x}"

    def aliases(self) -> list[str]:
        """Return the tenants that have cells."""
        names = map(self._name, range(MOST_TENANTS))
        return [_text(name) for name in itertools.takewhile(lambda each: each[0], names)]

    def tenant(self, alias: str) -> TenantCells:
        """Return a tenant's cells, marked as being changed until the lock is released. Call it
        within the lock. Raises LimitMemoryFullError."""
        return self.known(alias) or self._enter(alias, self._new_slot(_name_of(alias)))

    def known(self, alias: str) -> TenantCells | None:
        """Return what ``tenant`` does, but None for a tenant that has no cells yet."""
        name = _name_of(alias)
        if found := self._tenants.get(alias):
            slot, tenant = found
            if self._name(slot) == name:
                self._cells[_DIRTY] = slot + 1
                return tenant
        at = self._look(name)
        return None if at is None else self._enter(alias, at)

    def _enter(self, alias: str, slot: int) -> TenantCells:
        tenant = self._tenant(slot)
        self._tenants[alias] = slot, tenant
        self._cells[_DIRTY] = slot + 1
        return tenant

    def _tenant(self, slot: int) -> TenantCells:
        return TenantCells(self._cells, _HEAD_CELLS + slot * TENANT_CELLS, self._column)

    def _name(self, slot: int) -> bytes:
        at = (_HEAD_CELLS + slot * TENANT_CELLS) * CELL_BYTES
        return self._memory[at : at + ALIAS_BYTES]

    def _look(self, name: bytes) -> int | None:
        """Return the slot with this name."""
        slot = self._slots.get(name)
        if slot is not None and self._name(slot) == name:
            return slot
        if self._reused != self._cells[_REUSED]:
            self._reused, self._seen = self._cells[_REUSED], 0
            self._slots.clear()
        while self._seen < MOST_TENANTS and (found := self._name(self._seen))[0]:
            self._slots[found] = self._seen
            self._seen += 1
        return self._slots.get(name)

    def _new_slot(self, name: bytes) -> int:
        """Return the slot for a name that ``_look`` has not found."""
        free = self._seen
        if free == MOST_TENANTS:
            free = self._idle_slot()
            self._slots.pop(self._name(free), None)
            self._cells[_REUSED] += 1
            self._reused = self._cells[_REUSED]
        self._slots[name] = free
        at = _HEAD_CELLS + free * TENANT_CELLS
        # Never without a name: if this process is killed here, others would take it for the end.
        for cell in range(at + ALIAS_CELLS, at + TENANT_CELLS):
            self._cells[cell] = 0
        self._memory[at * CELL_BYTES : at * CELL_BYTES + ALIAS_BYTES] = name
        return free

    def _idle_slot(self) -> int:
        """Return the slot of a tenant of which nothing counts any more, or only what is stored."""
        clock = self._clock()
        if clock < self._full_until:
            raise LimitMemoryFullError(_FULL)
        now, today = int(clock), int(self._wall()) // 86_400
        for number in range(MOST_TENANTS):
            slot = (self._next_idle + number) % MOST_TENANTS
            tenant = self._tenant(slot)
            if not tenant.is_idle(now):
                continue
            days = (tenant[DAY], tenant[USED]), (tenant[LAST_DAY], tenant[LAST_USED])
            counts = [each for each in days if each[0] >= today and each[1]]
            if all(self._is_stored(_text(self._name(slot)), *each) for each in counts):
                self._next_idle = slot + 1
                return slot
        self._full_until = clock + _FULL_SECONDS
        raise LimitMemoryFullError(_FULL)

    # --- workers --------------------------------------------------------------------------------

    def _take_column(self) -> int:
        for column in range(MOST_WORKERS):
            if self._try_lock(_COLUMNS + column):
                self._close(column)
                self._cells[_TAKEN + column] = 1
                return column
        raise LimitMemoryFullError(f"more than {MOST_WORKERS} workers count in one memory")

    def sweep(self) -> int:
        """Take back what dead workers had open; return how many there were. Call it within the
        lock."""
        dead = 0
        for column in range(MOST_WORKERS):
            if column == self._column or not self._cells[_TAKEN + column]:
                continue
            if self._try_lock(_COLUMNS + column):
                self._close(column)
                self._unlock(_COLUMNS + column)
                dead += 1
        return dead

    def _close(self, column: int) -> None:
        self.places.free_column(column)
        for slot in range(MOST_TENANTS):
            if not self._name(slot)[0]:
                break
            self._tenant(slot).close_column(column)
        self._cells[_TAKEN + column] = 0

    def close(self) -> None:
        """Leave, with nothing open."""
        self._unlock(_COLUMNS + self._column)

    # --- locks ----------------------------------------------------------------------------------

    def _try_lock(self, byte: int) -> bool:
        if self._descriptor < 0:
            return True
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    def _unlock(self, byte: int) -> None:
        if self._descriptor >= 0:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def _acquire(self, turns: Callable[[], int]) -> bool:
        """Wait for the lock. False if it did not change hands for long: its holder is stopped."""
        seen, since = turns(), time.monotonic()
        patience = 0.0 if since < self._stuck_until else _PATIENCE_SECONDS
        for tries in itertools.count():
            if self._try_lock(_MUTEX):
                return True
            if tries < _SPINS:
                os.sched_yield()
                continue
            now = time.monotonic()
            if turns() != seen:
                seen, since = turns(), now
            elif now - since > patience:
                break
            time.sleep(_SHORT_SLEEP)
        if not self.inexact:
            _log.error("another worker holds the lock of the limits; they are inexact meanwhile")
        self.inexact += 1
        self._stuck_until = time.monotonic() + _STUCK_SECONDS
        return False


class _Lock:
    __slots__ = ("_held", "_memory")

    def __init__(self, memory: LimitMemory) -> None:
        self._memory = memory
        self._held = False

    def __enter__(self) -> None:
        self._held = self._memory.hold()

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._memory.release()


def _name_of(alias: str) -> bytes:
    return alias.encode().ljust(ALIAS_BYTES, b"\0")[:ALIAS_BYTES]


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode()


def _fill(descriptor: int) -> None:
    """Make the file as large as it must be, if no worker has. It is written, not only resized: if
    memory is full, this raises, where a store into a hole would kill the process."""
    if descriptor < 0 or os.fstat(descriptor).st_size == _SIZE:
        return
    os.ftruncate(descriptor, 0)
    zeros = bytes(1 << 20)
    for start in range(0, _SIZE, len(zeros)):
        chunk = zeros[: _SIZE - start]
        if os.pwrite(descriptor, chunk, start) != len(chunk):
            raise OSError("the memory of the limits could not be filled")
