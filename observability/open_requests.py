"""The table of open requests in a worker's ledger, from which the next worker learns what a killed
one was serving.

A row is a cell and two texts. The cell is 0 while the row is free, else 1 or 2: the text that
counts. A change writes the other text and then the cell, so that a kill leaves the old text or the
new one.
"""

from __future__ import annotations

from collections.abc import Iterator

from observability.ledger import ROW_BYTES, WorkerLedger

MAX_TEXT_BYTES = ROW_BYTES - 2
_FREE = 0


class OpenRequests:
    """Cells change by ``ledger``, and so within its transaction if one is open."""

    def __init__(self, ledger: WorkerLedger) -> None:
        self._ledger = ledger
        self._first = ledger.layout.request_cells
        self._rows = ledger.layout.open_requests
        self._free = [row for row in reversed(range(self._rows)) if not self._which(row)]

    def _which(self, row: int) -> int:
        return int(self._ledger.cells[self._first + row])

    def insert(self, text: bytes) -> int | None:
        """Return the row; None if there is no free one, or the text has more than
        ``MAX_TEXT_BYTES``."""
        if not self._free or len(text) > MAX_TEXT_BYTES:
            return None
        row = self._free.pop()
        self._ledger.write_text(row, 0, text)
        self._ledger.set(self._first + row, 1)
        return row

    def update(self, row: int, text: bytes) -> None:
        """Ignore a text that is too long: the row keeps the one before."""
        if len(text) > MAX_TEXT_BYTES:
            return
        other = 3 - self._which(row)
        self._ledger.write_text(row, other - 1, text)
        self._ledger.set(self._first + row, other)

    def remove(self, row: int) -> None:
        self._ledger.set(self._first + row, _FREE)
        self._free.append(row)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield rows and texts of all open requests."""
        for row in range(self._rows):
            which = self._which(row)
            if which in (1, 2):
                yield row, self._ledger.read_text(row, which - 1)
