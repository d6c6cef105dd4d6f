"""A queue of byte strings in a worker's ledger: what a killed worker had not taken out yet, the
next worker finds.

Two cells count the bytes ever written and ever released. An entry counts from when the first cell
changes, with the ledger's transaction if one is open.
"""

from __future__ import annotations

from observability.ledger import WorkerLedger

_SIZE_BYTES = 4


class ByteRing:
    def __init__(self, ledger: WorkerLedger) -> None:
        self._ledger = ledger
        self._ring = ledger.ring
        self._bytes = len(ledger.ring)
        self._written_cell = ledger.layout.ring_cells
        self._released_cell = self._written_cell + 1
        self._written = int(ledger.cells[self._written_cell])
        self._released = int(ledger.cells[self._released_cell])

    @property
    def used_bytes(self) -> int:
        return self._written - self._released

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def put(self, entry: bytes) -> bool:
        """Return False if there is no room for it."""
        framed = len(entry).to_bytes(_SIZE_BYTES, "little") + entry
        if self.used_bytes + len(framed) > self._bytes:
            return False
        at = self._written % self._bytes
        until_end = min(len(framed), self._bytes - at)
        self._ring[at : at + until_end] = framed[:until_end]
        self._ring[: len(framed) - until_end] = framed[until_end:]
        self._written += len(framed)
        self._ledger.set(self._written_cell, self._written)
        return True

    def first(self, most: int) -> tuple[list[bytes], int]:
        """Return the oldest entries, at most so many, and where they end, for ``release``."""
        entries: list[bytes] = []
        position = self._released
        while position < self._written and len(entries) < most:
            size = int.from_bytes(self._read(position, _SIZE_BYTES), "little")
            entries.append(self._read(position + _SIZE_BYTES, size))
            position += _SIZE_BYTES + size
        return entries, position

    def _read(self, position: int, size: int) -> bytes:
        at = position % self._bytes
        until_end = min(size, self._bytes - at)
        return bytes(self._ring[at : at + until_end]) + bytes(self._ring[: size - until_end])

    def release(self, position: int) -> None:
        """Forget all entries before it."""
        self._released = position
        self._ledger.set(self._released_cell, position)
