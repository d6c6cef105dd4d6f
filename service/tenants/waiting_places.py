"""Counts how many sequences wait for the engine, by owner, and how many one owner may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator


class WaitingPlaces:
    """Counts waiting sequences by owner. All operations are O(1)."""

    def __init__(self) -> None:
        self._total = 0
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[str]:
        """Iterate over the owners."""
        return iter(self._counts)

    def add(self, owner: str) -> None:
        self._total += 1
        self._counts[owner] += 1

    def remove(self, owner: str) -> None:
        self._total -= 1
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]

    def of(self, owner: str) -> int:
        return self._counts[owner]

    def owners(self, *, beside: str) -> int:
        """Return the number of owners with waiting sequences, without ``beside``."""
        return len(self._counts) - (beside in self._counts)


def share(total: int, others: int) -> int:
    """Return what one owner may have of ``total`` while ``others`` have some too: an equal share,
    with one more share left free for the next owner. At least one."""
    return max(1, total // (others + 2))
