"""Places for which all API workers of a server compete, such as those of WebSocket connections."""

from __future__ import annotations

import hashlib
from collections import Counter

# More than the largest setting, as each key may have one even when all are taken.
MOST_PLACES = 65_536 + 10_240
PLACES_CELLS = 1 + MOST_PLACES
_OWNER_BYTES = 7
_COLUMN_BITS = 6


class SharedPlaces:
    """Use it within the lock of the memory that ``cells`` are part of. The first cell is the number
    of those that may be taken; each further one is 0 while its place is free, else it says who owns
    the place and in which worker. ``column``: of this worker, below 63."""

    def __init__(self, cells: memoryview[int], column: int = 0) -> None:
        self._cells = cells
        self.column = column

    def owned(self) -> Counter[int]:
        """Return the number of places that each owner has, by ``owner_number``."""
        return Counter(value >> _COLUMN_BITS for value in self._values() if value)

    def take(self, owner: str) -> int:
        """Return the place that ``owner`` has now. Call it only if fewer than ``MOST_PLACES`` are
        taken."""
        cells, used = self._cells, self._cells[0]
        place = next((place for place in range(1, used + 1) if not cells[place]), used + 1)
        # First its value: a worker that is killed in between leaves the place free.
        cells[place] = (owner_number(owner) << _COLUMN_BITS) | (self.column + 1)
        if place > used:
            cells[0] = place
        return place

    def free(self, place: int) -> None:
        cells = self._cells
        cells[place] = 0
        while cells[0] and not cells[cells[0]]:
            cells[0] -= 1

    def free_column(self, column: int) -> None:
        """Free the places of a worker that has died."""
        mask = (1 << _COLUMN_BITS) - 1
        for place, value in reversed(list(enumerate(self._values(), 1))):
            if value and value & mask == column + 1:
                self.free(place)

    def _values(self) -> list[int]:
        found: list[int] = self._cells[1 : 1 + self._cells[0]].tolist()
        return found


def owner_number(owner: str) -> int:
    """Return the same number for an owner in every worker."""
    digest = hashlib.blake2b(owner.encode(), digest_size=_OWNER_BYTES).digest()
    return int.from_bytes(digest, "little")
