"""Who waits for the engine, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator


class WaitingPlaces:
    """Handles of waiting sequences, counted by owner. All operations are O(1)."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[int]:
        return iter(self._owners)

    def __contains__(self, handle: object) -> bool:
        return handle in self._owners

    def add(self, handle: int, owner: str) -> None:
        if handle not in self._owners:
            self._owners[handle] = owner
            self._counts[owner] += 1

    def discard(self, *handles: int) -> None:
        for handle in handles:
            owner = self._owners.pop(handle, None)
            if owner is not None:
                self._counts[owner] -= 1
                if not self._counts[owner]:
                    del self._counts[owner]

    def of(self, owner: str) -> int:
        return self._counts[owner]

    def owners(self, *, beside: str) -> int:
        """How many have something waiting, not counting ``beside``."""
        return len(self._counts) - (beside in self._counts)


def share(total: int, others: int) -> int:
    """What one owner may have of ``total`` while ``others`` have some of it too: as much as each of
    them, and as much again stays free for whoever comes next. At least one."""
    return max(1, total // (others + 2))
