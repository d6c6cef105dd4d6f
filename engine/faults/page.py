"""Which faults a server injects, and how often it did, in a file that its processes map.

The supervisor creates it, if there are any. Engines and workers read it when they start; a server
without faults has no such file, and nothing in it asks whether there is one. Counts survive the
processes that a fault kills, so that ``times`` holds for the whole server.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.faults.table import FAULTS, Fault, Place

_NUMBER_BYTES = 8
# Each fault has three numbers: how often the admin API requested it, how often that was fulfilled,
# and how often the fault was injected, for whatever reason.
_ASKED, _FULFILLED, _INJECTED, _NUMBERS = range(4)
_HEAD_BYTES = _NUMBER_BYTES * _NUMBERS * len(FAULTS)
_SLOTS = {row.name: place * _NUMBERS for place, row in enumerate(FAULTS)}


@dataclass(frozen=True, slots=True)
class FaultCounts:
    asked: int
    injected: int


class FaultPage:
    """The file at ``path``. Raises OSError if it cannot be mapped."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._numbers = memoryview(mmap.mmap(self._descriptor, _HEAD_BYTES)).cast("Q")
        told = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, _HEAD_BYTES)
        self.faults: tuple[Fault, ...] = msgspec.json.decode(told, type=tuple[Fault, ...])

    @classmethod
    def create(cls, path: Path, faults: Sequence[Fault]) -> FaultPage:
        """Write a new file. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(bytes(_HEAD_BYTES) + msgspec.json.encode(faults))
        return cls(path)

    def at(self, place: Place) -> Iterator[tuple[Fault, FaultTrigger]]:
        """Yield the faults of a place, each with what decides when it happens."""
        for fault in self.faults:
            if fault.row.place is place:
                yield fault, FaultTrigger(fault, self)

    def ask(self, name: str) -> None:
        """Inject a fault at the next event, whatever its own keys say."""
        with self._exclusively():
            self._numbers[_SLOTS[name] + _ASKED] += 1

    def counts(self, name: str) -> FaultCounts:
        slot = _SLOTS[name]
        return FaultCounts(self._numbers[slot + _ASKED], self._numbers[slot + _INJECTED])

    def is_asked(self, name: str) -> bool:
        slot = _SLOTS[name]
        return self._numbers[slot + _ASKED] > self._numbers[slot + _FULFILLED]

    def fulfil(self, name: str) -> bool:
        """Count an injection that an operator requested; False if another process was faster."""
        with self._exclusively():
            if not self.is_asked(name):
                return False
            self._numbers[_SLOTS[name] + _FULFILLED] += 1
            self._numbers[_SLOTS[name] + _INJECTED] += 1
            return True

    def take(self, fault: Fault) -> bool:
        """Count an injection that a fault's own keys caused; False if there may be no more."""
        if self._is_spent(fault):  # read without the lock, at every event from then on
            return False
        with self._exclusively():
            if self._is_spent(fault):
                return False
            self._numbers[_SLOTS[fault.name] + _INJECTED] += 1
            return True

    def _is_spent(self, fault: Fault) -> bool:
        slot = _SLOTS[fault.name]
        return self._numbers[slot + _INJECTED] - self._numbers[slot + _FULFILLED] >= fault.times

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Keep other threads and processes from counting. A killed process holds no lock."""
        with self._lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


class FaultTrigger:
    """Decides at which events a fault happens. Call it once for each."""

    def __init__(self, fault: Fault, page: FaultPage) -> None:
        self._fault = fault
        self._page = page
        self._events = 0
        # Its draws are the same in each run with this seed.
        self._draws = random.Random(fault.seed)

    def __call__(self) -> bool:
        """True if the fault is to happen at this event; it counts as injected then."""
        fault, page = self._fault, self._page
        self._events += 1
        if page.is_asked(fault.name) and page.fulfil(fault.name):
            return True
        later = self._events - 1 - fault.after
        if later < 0 or later % fault.every:
            return False
        if fault.probability < 1.0 and self._draws.random() >= fault.probability:
            return False
        return page.take(fault)
