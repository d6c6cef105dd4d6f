"""Decides which texts an encoder computes next: whole texts, as many as fit a step's budget.

An encoder keeps nothing between steps, so there are no blocks to allocate, no prefixes to share and
no sequences to preempt.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from engine.messages import EngineCounters
from engine.queueing import WaitingReason
from engine.schedule.blocks import BlockCounts
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan


class WholeTextScheduler:
    """The ``Scheduling`` of a model without a KV cache.

    A step's plan holds the first sequences in the queue while slots and budget last. The head is
    never overtaken.
    """

    def __init__(
        self,
        *,
        max_model_len: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        counters: EngineCounters | None = None,
    ) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_sequence_len = max_model_len
        # A text that the model accepts must fit into a step.
        self.max_num_batched_tokens = max(max_num_batched_tokens, max_model_len)
        self.counters = counters or EngineCounters()
        self.waiting_reason: WaitingReason | None = None
        self._waiting = WaitingQueue()
        self._running: dict[int, Sequence] = {}

    @property
    def running(self) -> Collection[Sequence]:
        return self._running.values()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._running) or bool(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises ValueError for one that is empty or could never run."""
        if not 0 < sequence.num_tokens <= self.max_sequence_len:
            raise ValueError(
                f"a text of {sequence.num_tokens} tokens; 1 to {self.max_sequence_len} can run"
            )
        self._waiting.enter(sequence)

    def num_cached(self, sequence: Sequence) -> int:
        return 0

    def free_slots(self, num_tokens: int) -> int:
        return self.max_num_seqs - len(self._running)

    def schedule(self, now: float, sitting_out: Set[int] = frozenset()) -> StepPlan:
        """Plan the next step. ``sitting_out``: uids of sequences to leave out. Empty only if there
        is no other work."""
        budget = self.max_num_batched_tokens
        self.waiting_reason = None
        while (head := self._waiting.head()) is not None:
            if len(self._running) == self.max_num_seqs:
                self.waiting_reason = WaitingReason.SLOTS
                break
            if head.num_tokens > budget:
                self.waiting_reason = WaitingReason.BUDGET
                break
            budget -= head.num_tokens
            sequence = self._waiting.pop()
            sequence.first_scheduled_time = now
            self._waiting.charge(sequence)
            self._running[sequence.uid] = sequence
        sequences = tuple(s for s in self._running.values() if s.uid not in sitting_out)
        if sequences:
            self.counters.steps += 1
        items = tuple(ScheduledSequence(s, 0, s.num_tokens, completes=True) for s in sequences)
        return StepPlan(items, sequences)

    def update(self, item: ScheduledSequence, token_id: int | None, now: float) -> None:
        """Record that the step has computed this item."""
        item.sequence.num_computed_tokens = item.num_tokens
        self.counters.prompt_tokens_computed += item.num_tokens

    def plan_on(self, item: ScheduledSequence) -> None:
        """Do nothing: a text takes a single step."""

    def rewind(self, item: ScheduledSequence) -> None:
        """Do nothing: there is nothing to undo."""

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence, waiting or running, finished or aborted."""
        if sequence in self._waiting:
            self._waiting.discard(sequence)
        else:
            del self._running[sequence.uid]
        self._waiting.leave(sequence)

    def block_counts(self) -> BlockCounts:
        return BlockCounts(0, 0, 0)

    def lend_blocks(self, num_tokens: int = 1) -> list[int]:
        """Return no blocks, as none are needed."""
        return []

    def take_back(self, blocks: list[int]) -> None:
        """Do nothing: there is nothing to release."""
