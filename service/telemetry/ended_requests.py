"""Records of ended requests, on their way from the event loop to the database: a queue in the
worker's ledger, so that those of a killed worker are stored by the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from observability.byte_ring import ByteRing


class Encodable(Protocol):
    def encode(self) -> bytes: ...


class EndedRequests:
    """``dropped`` is called for each record for which there is no room. A ring of no size: none is
    kept."""

    def __init__(self, ring: ByteRing, dropped: Callable[[], None]) -> None:
        self._ring = ring
        self._dropped = dropped

    @property
    def is_kept(self) -> bool:
        return self._ring.size_bytes > 0

    @property
    def fill(self) -> float:
        """Share of the room that is taken."""
        return self._ring.used_bytes / self._ring.size_bytes if self.is_kept else 0.0

    @property
    def count(self) -> int:
        """How many wait. It reads all of them."""
        return len(self._ring.first(self._ring.used_bytes)[0])

    def put(self, record: Encodable) -> None:
        """Call it in the transaction that counts the request: both are then done, or neither."""
        if self.is_kept and not self._ring.put(record.encode()):
            self._dropped()

    def first(self, most: int) -> tuple[list[bytes], int]:
        """Return the oldest records, encoded, at most so many, and what to ``release`` once they
        are stored."""
        return self._ring.first(most)

    def release(self, position: int, *, dropped: int = 0) -> None:
        """``dropped``: how many were not stored nevertheless."""
        self._ring.release(position)
        for _ in range(dropped):
            self._dropped()
