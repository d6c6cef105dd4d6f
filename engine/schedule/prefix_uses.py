"""How often cached prefixes were found, and when last.

A hit is noted at the last block that was found, so it costs the same however long the prefix is.
Those before it were found as often as it was itself, and as the blocks after it were. When a block
is evicted, its hits go to the one before it: ends are evicted first.
"""

from __future__ import annotations


class PrefixUses:
    def __init__(self, num_blocks: int) -> None:
        self.hits = [0] * num_blocks  # that ended at each block
        self.last = [0.0] * num_blocks  # when, in monotonic seconds

    def found(self, block: int, now: float) -> None:
        """Record that a prefix was found that ends with this block."""
        self.hits[block] += 1
        self.last[block] = now

    def pass_on(self, block: int, before: int | None) -> None:
        """Move the hits of an evicted block to the one ``before`` it, if that is still there."""
        hits, last = self.hits[block], self.last[block]
        self.hits[block] = 0
        if before is not None:
            self.hits[before] += hits
            self.last[before] = max(self.last[before], last)
