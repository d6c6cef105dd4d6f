"""The interface between the loop and a scheduler, for any kind of model."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import Protocol

from engine.messages import EngineCounters
from engine.queueing import WaitingReason
from engine.schedule.blocks import BlockCounts
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan


class Scheduling(Protocol):
    """Add sequences; schedule a step; update with its results; finish a sequence."""

    waiting_reason: WaitingReason | None  # why the head of the queue waited in the last step

    @property
    def counters(self) -> EngineCounters: ...

    @property
    def max_num_seqs(self) -> int: ...

    @property
    def max_sequence_len(self) -> int:
        """The longest sequence that can run, in tokens."""
        ...

    @property
    def running(self) -> Collection[Sequence]: ...

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def has_work(self) -> bool: ...

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises ValueError for one that is empty or could never run."""
        ...

    def num_cached(self, sequence: Sequence) -> int:
        """Return how many tokens of a sequence need not be computed, as of now."""
        ...

    def free_slots(self, num_tokens: int) -> int:
        """Return how many waiting sequences of so many tokens could start now."""
        ...

    def schedule(self, now: float, sitting_out: Set[int] = frozenset()) -> StepPlan:
        """Plan the next step. ``sitting_out``: uids of sequences to leave out, which stay where
        they are. Empty only if there is no other work."""
        ...

    def plan_on(self, item: ScheduledSequence) -> None:
        """Plan as if the step in progress had computed this item, although its sampled token is not
        known yet. ``update`` or ``rewind`` follows."""
        ...

    def update(self, item: ScheduledSequence, token_id: int | None, now: float) -> None:
        """Record that the step has computed this item, and sampled ``token_id`` if not None."""
        ...

    def rewind(self, item: ScheduledSequence) -> None:
        """Undo an item that the step did not compute: it must be computed again."""
        ...

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting, finished or aborted."""
        ...

    def block_counts(self) -> BlockCounts: ...

    def lend_blocks(self, num_tokens: int = 1) -> list[int]:
        """The blocks that a sequence of so many tokens needs. Raises OutOfBlocksError."""
        ...

    def take_back(self, blocks: list[int]) -> None:
        """Release blocks that were lent."""
        ...
