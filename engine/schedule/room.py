"""Which waiting sequences the KV cache has room for, besides those that run."""

from __future__ import annotations

from collections.abc import Iterable, Set

from engine.schedule.blocks import BlockPool
from engine.step.sequence import Sequence


class Room:
    """``promised``: blocks that running prompts will need; admitting on them would only lead to
    preemption."""

    __slots__ = ("_pool", "_size", "promised")

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._size = block_size
        self.promised = 0

    def num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._size)

    def missing(self, sequences: Iterable[Sequence]) -> int:
        """Return the blocks that these sequences lack for the tokens they have."""
        return sum(self.num_blocks(one.num_tokens) - len(one.block_table) for one in sequences)

    def promise(self, prefilling: Iterable[Sequence], preempted: Set[int]) -> None:
        """Promise their blocks to running prompts, except those of ``preempted`` uids."""
        self.promised = self.missing(one for one in prefilling if one.uid not in preempted)

    def fits(self, sequence: Sequence, hits: list[int], num_running: int, kept: int = 0) -> bool:
        """True if there are blocks for all tokens of a waiting sequence, besides those promised to
        others, those for ``kept`` tokens of one, and one more for each running sequence, so that it
        is not preempted at once."""
        # A hit that no sequence holds counts as available, so it must also count as needed.
        shared = sum(1 for block in hits if self._pool.ref_count(block))
        needed = self.num_blocks(sequence.num_tokens) - shared + self.num_blocks(kept)
        return needed + self.promised + num_running <= self._pool.num_available

    def for_more(self, num_tokens: int, num_running: int) -> int:
        """Return how many waiting sequences of so many tokens have room."""
        # Each needs one block more once it runs.
        blocks = self._pool.num_available - self.promised - num_running
        return max(0, blocks // (self.num_blocks(num_tokens) + 1))
