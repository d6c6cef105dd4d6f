"""The waiting sequences of one tenant in one class, and what the tenant has been given."""

from __future__ import annotations

import heapq

from engine.step.sequence import Sequence

# How many sequences in a row may be taken ahead of the oldest one.
MOST_OUT_OF_TURN = 7


class TenantQueue:
    """Ordered by rank: priority, then arrival. A preempted sequence arrived earlier, and so
    precedes new ones of its priority.

    After ``MOST_OUT_OF_TURN`` sequences were taken ahead of the oldest one, it is next regardless
    of its priority, so that no sequence starves however many of higher priority arrive.

    ``push`` and ``pop`` are O(log n). ``discard`` is amortised O(1): the entry stays in its heaps
    as a tombstone and is skipped later; tombstones are removed once they are the majority.
    ``foremost_of`` looks at one entry for each power of two up to the length.

    ``counter``: the tenant's work so far divided by its ``weight`` (``engine.schedule.waiting``).
    ``live``: its sequences that wait or run.
    """

    __slots__ = (
        "_by_age",
        "_by_length",
        "_heap",
        "_members",
        "_num_by_length",
        "_out_of_turn",
        "counter",
        "live",
        "weight",
    )

    def __init__(self) -> None:
        self.counter = 0.0
        self.weight = 1.0
        self.live = 0
        self._heap: list[tuple[int, int, int]] = []  # ranks, which end with the uid
        self._by_age: list[int] = []  # uids
        # Ranks by the bit length of the number of tokens.
        self._by_length: dict[int, list[tuple[int, int, int]]] = {}
        self._num_by_length = 0
        self._members: dict[int, Sequence] = {}
        self._out_of_turn = 0  # taken since the oldest one last had its turn

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.uid in self._members

    def push(self, sequence: Sequence) -> None:
        self._members[sequence.uid] = sequence
        heapq.heappush(self._heap, sequence.rank)
        heapq.heappush(self._by_age, sequence.uid)
        self._push_by_length(sequence)

    def _push_by_length(self, sequence: Sequence) -> None:
        if sequence.params.prompt_logprobs is not None:  # its work is more than its length
            return
        ranks = self._by_length.setdefault(sequence.num_tokens.bit_length(), [])
        heapq.heappush(ranks, sequence.rank)
        self._num_by_length += 1

    def head(self) -> Sequence | None:
        """Return the sequence whose turn is next."""
        return self._first() if self._out_of_turn >= MOST_OUT_OF_TURN else self._foremost()

    def _foremost(self) -> Sequence | None:
        """Return the first by rank."""
        while self._heap:
            sequence = self._members.get(self._heap[0][-1])
            if sequence is not None:
                return sequence
            heapq.heappop(self._heap)
        return None

    def _first(self) -> Sequence | None:
        """Return the first by arrival."""
        while self._by_age:
            sequence = self._members.get(self._by_age[0])
            if sequence is not None:
                return sequence
            heapq.heappop(self._by_age)
        return None

    def foremost_of(self, most_tokens: int) -> Sequence | None:
        """Return the first by rank of those with at most so many tokens, if its priority is not
        worse than the best. Of those whose length has as many bits as ``most_tokens``, only the
        first is considered."""
        found = None
        for bits in range(1, most_tokens.bit_length() + 1):
            one = self._foremost_of_bits(bits)
            if one is None or one.num_tokens > most_tokens:
                continue
            if found is None or one.rank < found.rank:
                found = one
        best = self._foremost()
        if found is None or best is None or found.rank[:2] > best.rank[:2]:
            return None
        return found

    def _foremost_of_bits(self, bits: int) -> Sequence | None:
        ranks = self._by_length.get(bits)
        while ranks:
            sequence = self._members.get(ranks[0][-1])
            # It has more tokens than when it was pushed if it has run since and was preempted.
            if sequence is not None and sequence.num_tokens.bit_length() == bits:
                return sequence
            heapq.heappop(ranks)
            self._num_by_length -= 1
        return None

    def pop(self) -> Sequence:
        """Remove and return the head. Raises IndexError if the queue is empty."""
        sequence = self.head()
        if sequence is None:
            raise IndexError("nothing waits")
        self._out_of_turn = 0 if sequence is self._first() else self._out_of_turn + 1
        self.discard(sequence)
        return sequence

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence from anywhere in the queue."""
        del self._members[sequence.uid]
        most = 2 * len(self._members) + 64
        if len(self._heap) > most:
            self._heap = [member.rank for member in self._members.values()]
            heapq.heapify(self._heap)
        if len(self._by_age) > most:
            self._by_age = list(self._members)
            heapq.heapify(self._by_age)
        if self._num_by_length > most:
            self._by_length.clear()
            self._num_by_length = 0
            for member in self._members.values():
                self._push_by_length(member)
