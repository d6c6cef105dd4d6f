"""The waiting sequences of one tenant in one class, and what the tenant has been given."""

from __future__ import annotations

import heapq
import math

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
    ``foremost_of`` looks at one entry for each power of two up to the work.

    ``prompt_logprob_work``: as in ModelInfo.
    ``counter``: the tenant's work so far divided by its ``weight`` (``engine.schedule.waiting``).
    ``live``: its sequences that wait or run.
    """

    __slots__ = (
        "_by_age",
        "_by_work",
        "_heap",
        "_members",
        "_num_by_work",
        "_out_of_turn",
        "counter",
        "live",
        "prompt_logprob_work",
        "weight",
    )

    def __init__(self, prompt_logprob_work: float = 1.0) -> None:
        self.prompt_logprob_work = prompt_logprob_work
        self.counter = 0.0
        self.weight = 1.0
        self.live = 0
        self._heap: list[tuple[int, int, int]] = []  # ranks, which end with the uid
        self._by_age: list[int] = []  # uids
        # Ranks by the bit length of the work.
        self._by_work: dict[int, list[tuple[int, int, int]]] = {}
        self._num_by_work = 0
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
        self._push_by_work(sequence)

    def _push_by_work(self, sequence: Sequence) -> None:
        ranks = self._by_work.setdefault(self._work(sequence).bit_length(), [])
        heapq.heappush(ranks, sequence.rank)
        self._num_by_work += 1

    def _work(self, sequence: Sequence) -> int:
        """Return the work of all its tokens, counted in tokens without prompt logprobs."""
        tokens = len(sequence.token_ids)
        if sequence.params.prompt_logprobs is None:
            return tokens
        return math.ceil(tokens * self.prompt_logprob_work)

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

    def foremost_of(self, most_work: int) -> Sequence | None:
        """Return the first by rank of those with at most so much work, if its priority is not
        worse than the best. Of those whose work has as many bits as ``most_work``, only the
        first is considered."""
        found = None
        for bits in range(1, most_work.bit_length() + 1):
            one = self._foremost_of_bits(bits)
            if one is None or self._work(one) > most_work:
                continue
            if found is None or one.rank < found.rank:
                found = one
        best = self._foremost()
        if found is None or best is None or found.rank[:2] > best.rank[:2]:
            return None
        return found

    def _foremost_of_bits(self, bits: int) -> Sequence | None:
        ranks = self._by_work.get(bits)
        while ranks:
            sequence = self._members.get(ranks[0][-1])
            # It has more work than when it was pushed if it has run since and was preempted.
            if sequence is not None and self._work(sequence).bit_length() == bits:
                return sequence
            heapq.heappop(ranks)
            self._num_by_work -= 1
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
        if self._num_by_work > most:
            self._by_work.clear()
            self._num_by_work = 0
            for member in self._members.values():
                self._push_by_work(member)
