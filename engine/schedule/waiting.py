"""Decides which waiting sequence is next, fairly among classes and tenants.

1. A sequence that was preempted after its first token goes first: its reader is waiting for the
   rest.
2. Among classes, the most urgent one with waiting sequences has the turn, but ``FLOORS`` of the
   work is reserved for the others while they have any waiting.
3. Within a class, the tenant with the lowest counter has the turn: virtual token counters (Sheng et
   al., "Fairness in Serving Large Language Models", OSDI 2024). A tenant's counter is its work in
   all classes divided by its weight. A tenant that comes back from having nothing waiting starts at
   the lowest counter of those that wait, so that idle time earns nothing.
4. Within a tenant, rank decides: priority, then arrival (``engine.schedule.tenant_queue``).

With one tenant in one class only rule 4 remains, apart from short prompts (below).

Work is counted in tokens: a prompt's at admission, those in the prefix cache at a tenth, those with
logprobs at what these cost; generated tokens at twice a prompt's, once they exist. What is computed
again after a preemption is free.

The bounds that follow, for a sequence that waits:

- Of its own tenant, at most 8 (k + 1) - 1 sequences go ahead of it, where k are older.
- Each other tenant i of its class is given at most w (c - c') + p of prompt work: w is i's weight,
  c this tenant's counter at the end, c' i's counter at the beginning, and p its largest prompt.
- Besides, while prompts of others are computed, short ones may go ahead of it out of turn
  (``engine.schedule.short_prompts``): with at most half of the prompt tokens of the steps that it
  waits, and one such prompt more; and none of a tenant that has been given ``_MOST_EARLY_WORK``
  more than the one that has been given least. Its own tenant's short ones do so, too, if their
  priority is not worse than that of any of its others.
- While a class waits, the others are given at most (d + o) / f of work until its next turn,
  beyond the admission under way: f is its floor, d the work it has been given by its floor and not
  yet earned, and o what is owed to other classes by theirs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from engine.queueing import ServiceClass
from engine.schedule.tenant_queue import TenantQueue
from engine.step.sequence import MOST_OVERTAKEN, Sequence

# Work for each token.
PROMPT_WORK = 1.0
CACHED_WORK = 0.1
OUTPUT_WORK = 2.0

# The share of all work that is reserved for a class while it has waiting sequences. The rest is for
# the most urgent class.
FLOORS: Final = {
    ServiceClass.INTERACTIVE: 0.0,
    ServiceClass.STANDARD: 0.25,
    ServiceClass.BATCH: 0.1,
}

# Lower is more urgent.
URGENCY: Final = {each: place for place, each in enumerate(ServiceClass)}

# How many tenants a class remembers, beyond those with live sequences.
_MOST_IDLE = 1024
# How many tenants ``candidates`` looks at.
_MOST_TENANTS = 16
# How much more work, at a weight of 1, they may have been given than the one with the least.
_MOST_EARLY_WORK = 2048


class _ClassQueue:
    """The tenants of a class. ``owed``: work that its floor has earned and not been given; negative
    if it was given more. ``left_at``: the counter of the last tenant that stopped waiting."""

    __slots__ = ("floor", "left_at", "live", "owed", "tenants", "turn", "waiting")

    def __init__(self, floor: float) -> None:
        self.floor = floor
        self.owed = 0.0
        self.left_at = 0.0
        self.live = 0
        self.tenants: dict[str, TenantQueue] = {}
        self.waiting: dict[str, TenantQueue] = {}
        self.turn: str | None = None  # the tenant chosen, until one of its sequences is taken

    def next_tenant(self) -> TenantQueue:
        """Return the tenant whose turn it is. A choice is kept until it is taken, so that a large
        sequence is not overtaken for ever while it waits for room."""
        if self.turn is None or self.turn not in self.waiting:
            self.turn = min(self.waiting, key=lambda name: self.waiting[name].counter)
        return self.waiting[self.turn]

    def lowest(self) -> float:
        """Return the counter at which a tenant starts that had nothing waiting."""
        return min((queue.counter for queue in self.waiting.values()), default=self.left_at)

    def forget_idle(self) -> None:
        """Forget the tenants without live sequences that would start at ``lowest`` anyway; if that
        is not enough, those with the lowest counters."""
        lowest = self.lowest()
        idle = [(queue.counter, name) for name, queue in self.tenants.items() if not queue.live]
        idle.sort()
        for place, (counter, name) in enumerate(idle):
            if counter <= lowest or place < len(idle) - _MOST_IDLE // 2:
                del self.tenants[name]


class WaitingQueue:
    """``push`` when a sequence starts to wait, ``pop`` and then ``charge`` when it starts to run,
    ``leave`` when it ends; ``settle`` before the next is chosen."""

    def __init__(self, prompt_logprob_work: float = 1.0) -> None:
        self.prompt_logprob_work = prompt_logprob_work  # as in ModelInfo
        self._classes = {each: _ClassQueue(floor) for each, floor in FLOORS.items()}
        self._ranked = tuple(self._classes.values())
        self._members: dict[int, Sequence] = {}  # by uid
        self._num_known = 0  # tenants that have a queue
        self._num_queues = 0  # that are not empty
        self._begun: set[int] = set()  # uids of members that had output when they were preempted
        self._by_floor: set[int] = set()  # uids of live sequences admitted by a floor

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.uid in self._members

    # --- waiting ------------------------------------------------------------------------------

    def enter(self, sequence: Sequence, running: Iterable[Sequence] = ()) -> None:
        """Add a new sequence. ``running``: those to settle first."""
        group = self._classes[sequence.service_class]
        queue = group.tenants.get(sequence.tenant)
        if queue is None:
            if len(group.tenants) >= _MOST_IDLE:
                group.forget_idle()
            queue = group.tenants[sequence.tenant] = TenantQueue(self.prompt_logprob_work)
            self._num_known = sum(len(each.tenants) for each in self._ranked)
        queue.live += 1
        queue.weight = sequence.weight
        group.live += 1
        if not len(queue) and self._num_known > 1:
            self.settle(running)
            queue.counter = max(queue.counter, group.lowest())
        self._push(sequence, group, queue)

    def put_back(self, sequence: Sequence) -> None:
        """Add a sequence that was preempted."""
        group = self._classes[sequence.service_class]
        if sequence.num_output_tokens > 0:
            self._begun.add(sequence.uid)
        self._push(sequence, group, group.tenants[sequence.tenant])

    def _push(self, sequence: Sequence, group: _ClassQueue, queue: TenantQueue) -> None:
        if not len(queue):
            group.waiting[sequence.tenant] = queue
            self._num_queues += 1
        self._members[sequence.uid] = sequence
        queue.push(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence from anywhere in the queue."""
        del self._members[sequence.uid]
        queue = self._classes[sequence.service_class].tenants[sequence.tenant]
        queue.discard(sequence)
        self._removed(sequence, queue)

    def _removed(self, sequence: Sequence, queue: TenantQueue) -> None:
        if self._begun:
            self._begun.discard(sequence.uid)
        if not len(queue):
            group = self._classes[sequence.service_class]
            del group.waiting[sequence.tenant]
            if group.turn == sequence.tenant:
                group.turn = None
            group.left_at = max(group.left_at, queue.counter)
            self._num_queues -= 1
            if not group.waiting and group.owed > 0:
                group.owed = 0.0

    # --- choosing -----------------------------------------------------------------------------

    def yields_to(self, head: Sequence, running: list[Sequence]) -> Sequence | None:
        """Return the last running sequence of a less urgent class than the head's that has no token
        yet, was not admitted by its class's floor and may still be overtaken; None if there is
        none."""
        if sum(group.live > 0 for group in self._ranked) < 2:
            return None
        urgency = URGENCY[head.service_class]
        for sequence in reversed(running):
            if (
                URGENCY[sequence.service_class] > urgency
                and sequence.num_output_tokens == 0
                and sequence.num_overtaken < MOST_OVERTAKEN
                and sequence.uid not in self._by_floor
            ):
                return sequence
        return None

    @property
    def is_shared(self) -> bool:
        """True if several tenants or classes wait, so that counters decide."""
        return self._num_queues > 1

    def head(self) -> Sequence | None:
        """Return the sequence whose turn is next."""
        queue = self._next_queue()
        return None if queue is None else queue.head()

    def pop(self) -> Sequence:
        """Remove and return the head. Raises IndexError if the queue is empty."""
        queue = self._next_queue()
        if queue is None:
            raise IndexError("nothing waits")
        return self._pop_of(queue)

    def candidates(self, most_work: int) -> Iterator[Sequence]:
        """Yield those that may go out of turn while a long prompt is computed: the head, then, in
        the order of the tenants of its class by what they have been given, each one's head and its
        foremost prompt of at most so much work. Few, as there may be many tenants, and none of a
        tenant that is far ahead of another, so that each is given its share."""
        head = self.head()
        if head is None:
            return
        yield head
        if self._begun:
            return
        group = self._classes[head.service_class]
        queues = heapq.nsmallest(
            _MOST_TENANTS, group.waiting.values(), key=lambda queue: queue.counter
        )
        least = queues[0].counter
        for queue in queues:
            if queue.counter > least + _MOST_EARLY_WORK / queue.weight:
                continue
            if (other := queue.head()) is not None and other is not head:
                yield other
            short = queue.foremost_of(most_work)
            if short is not None and short is not other and short is not head:
                yield short

    def pop_early(self, sequence: Sequence) -> None:
        """Remove one of ``candidates``. The head, if it is another, keeps its turn."""
        queue = self._classes[sequence.service_class].tenants[sequence.tenant]
        if sequence is queue.head():
            self._pop_of(queue)
        else:
            queue.discard(sequence)
            self._started(sequence, queue)

    def _pop_of(self, queue: TenantQueue) -> Sequence:
        sequence = queue.pop()
        group = self._classes[sequence.service_class]
        if group.turn == sequence.tenant and sequence.uid not in self._begun:
            group.turn = None
        self._started(sequence, queue)
        return sequence

    def _started(self, sequence: Sequence, queue: TenantQueue) -> None:
        del self._members[sequence.uid]
        owed = self._classes[sequence.service_class].owed
        if owed > 0 and self._num_queues > 1 and sequence.uid not in self._begun:
            self._by_floor.add(sequence.uid)
        self._removed(sequence, queue)

    def _next_queue(self) -> TenantQueue | None:
        if self._num_queues > 1:
            return self._begun_queue() if self._begun else self._next_class().next_tenant()
        for group in self._ranked:
            for queue in group.waiting.values():
                return queue
        return None

    def _begun_queue(self) -> TenantQueue:
        """Return the queue whose head has output and ranks first; by turn if there is none."""
        first: tuple[tuple[int, int, int], TenantQueue] | None = None
        for group in self._ranked:
            for queue in group.waiting.values():
                head = queue.head()
                if head is not None and head.uid in self._begun:
                    first = (head.rank, queue) if first is None else min(first, (head.rank, queue))
        return self._next_class().next_tenant() if first is None else first[1]

    def _next_class(self) -> _ClassQueue:
        """Return the class whose turn it is. At least one waits."""
        waiting = [group for group in self._ranked if group.waiting]
        owed = max(waiting, key=lambda group: group.owed)
        return owed if owed.owed > 0 else waiting[0]

    # --- work ---------------------------------------------------------------------------------

    def charge(self, sequence: Sequence) -> None:
        """Count the prompt of a sequence that is admitted for the first time."""
        cached = sequence.num_cached_tokens
        fresh = sequence.num_prompt_tokens - cached
        each = PROMPT_WORK
        if sequence.params.prompt_logprobs is not None:
            each *= self.prompt_logprob_work
        self._count(sequence, each * fresh + CACHED_WORK * cached)

    def settle(self, running: Iterable[Sequence]) -> None:
        """Count the output of these sequences that has not been counted yet."""
        for sequence in running:
            fresh = sequence.num_output_tokens - sequence.num_counted_output
            if fresh > 0:
                sequence.num_counted_output += fresh
                self._count(sequence, OUTPUT_WORK * fresh)

    def leave(self, sequence: Sequence) -> None:
        """Note the end of a sequence that is not waiting."""
        self.settle((sequence,))
        group = self._classes[sequence.service_class]
        group.live -= 1
        group.tenants[sequence.tenant].live -= 1
        if self._by_floor:
            self._by_floor.discard(sequence.uid)

    def _count(self, sequence: Sequence, work: float) -> None:
        own = self._classes[sequence.service_class]
        for group in self._ranked:
            queue = group.tenants.get(sequence.tenant)
            if queue is not None:  # in every class, or several classes would be several shares
                queue.counter += work / queue.weight
            if group.waiting:
                group.owed += group.floor * work
            elif group.owed < 0:
                group.owed = min(0.0, group.owed + group.floor * work)
        if sequence.uid in self._by_floor:
            own.owed -= work
        elif own.owed > 0:
            own.owed = max(0.0, own.owed - work)
