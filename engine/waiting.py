"""The queue of sequences that want to run."""

from __future__ import annotations

import heapq

from engine.sequence import Sequence


class WaitingQueue:
    """Ordered by priority, then arrival. A preempted sequence, having come earlier, stands before
    all newcomers of its priority.

    ``push`` and ``pop`` are O(log n). ``discard`` is amortised O(1): the entry stays in the heap as
    a husk, passed over when it comes up, and husks are swept out once they are the majority.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []
        self._members: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.uid in self._members

    def push(self, sequence: Sequence) -> None:
        self._members[sequence.uid] = sequence
        heapq.heappush(self._heap, (sequence.priority, sequence.uid, sequence))

    def head(self) -> Sequence | None:
        """The sequence whose turn is next."""
        while self._heap:
            sequence = self._heap[0][2]
            if sequence.uid in self._members:
                return sequence
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Sequence:
        """Take the head out. Raises IndexError when nothing waits."""
        sequence = self.head()
        if sequence is None:
            raise IndexError("nothing waits")
        heapq.heappop(self._heap)
        del self._members[sequence.uid]
        return sequence

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out wherever it stands."""
        del self._members[sequence.uid]
        if len(self._heap) > 2 * len(self._members) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapq.heapify(self._heap)
