"""The queue of sequences that want to run."""

from __future__ import annotations

import heapq

from engine.step.sequence import Sequence

# How many may be taken before the sequence that came first, one after the other.
MOST_OUT_OF_TURN = 7


class WaitingQueue:
    """Ordered by rank: priority, then arrival. A preempted sequence, having come earlier, stands
    before all newcomers of its priority.

    After ``MOST_OUT_OF_TURN`` that went ahead of the sequence that came first, it is that one's
    turn whatever its priority: so everybody's turn comes, however many of higher priority arrive.

    ``push`` and ``pop`` are O(log n). ``discard`` is amortised O(1): the entry stays in its heaps
    as a husk, passed over when it comes up, and husks are swept out once they are the majority.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []  # ranks, which end with the uid
        self._by_age: list[int] = []  # uids
        self._members: dict[int, Sequence] = {}
        self._out_of_turn = 0  # taken since it was the turn of the one that came first

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.uid in self._members

    def push(self, sequence: Sequence) -> None:
        self._members[sequence.uid] = sequence
        heapq.heappush(self._heap, sequence.rank)
        heapq.heappush(self._by_age, sequence.uid)

    def head(self) -> Sequence | None:
        """The sequence whose turn is next."""
        return self._first() if self._out_of_turn >= MOST_OUT_OF_TURN else self._foremost()

    def _foremost(self) -> Sequence | None:
        """By rank."""
        while self._heap:
            sequence = self._members.get(self._heap[0][-1])
            if sequence is not None:
                return sequence
            heapq.heappop(self._heap)
        return None

    def _first(self) -> Sequence | None:
        """By arrival."""
        while self._by_age:
            sequence = self._members.get(self._by_age[0])
            if sequence is not None:
                return sequence
            heapq.heappop(self._by_age)
        return None

    def pop(self) -> Sequence:
        """Take the head out. Raises IndexError when nothing waits."""
        sequence = self.head()
        if sequence is None:
            raise IndexError("nothing waits")
        self._out_of_turn = 0 if sequence is self._first() else self._out_of_turn + 1
        self.discard(sequence)
        return sequence

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out wherever it stands."""
        del self._members[sequence.uid]
        most = 2 * len(self._members) + 64
        if len(self._heap) > most:
            self._heap = [member.rank for member in self._members.values()]
            heapq.heapify(self._heap)
        if len(self._by_age) > most:
            self._by_age = list(self._members)
            heapq.heapify(self._by_age)
