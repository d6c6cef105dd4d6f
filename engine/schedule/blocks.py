"""The pool of KV cache blocks: which sequences hold them, and which contents are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


class OutOfBlocksError(Exception):
    """Every block is held by a sequence."""


@dataclass(frozen=True, slots=True)
class BlockCounts:
    free: int  # without contents
    cached: int  # not held, contents kept
    active: int  # held at least once


class BlockPool:
    """Blocks 0 to ``num_blocks - 1``, reference counted; every operation is O(1) per block.

    A block may have a key that identifies its contents. Invariants:

    - a block is in exactly one state: *free* (no holder, no key), *cached* (no holder, a key) or
      *active* (held ``ref_count`` times, with or without a key);
    - a key names at most one block, and a block has at most one key;
    - ``allocate`` takes free blocks first, then the least recently released cached block.

    ``on_evicted`` is called with each cached block whose key is dropped, and that key.
    """

    def __init__(
        self, num_blocks: int, on_evicted: Callable[[int, bytes], None] = lambda block, key: None
    ) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool of {num_blocks} blocks")
        self.num_blocks = num_blocks
        self.on_evicted = on_evicted
        # Popped from the end, so that low numbers are used first and memory is touched in order.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently released first
        self._ref_counts = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        self._by_key: dict[bytes, int] = {}
        self.evictions = 0

    @property
    def num_available(self) -> int:
        """The number of blocks that ``allocate`` can return now."""
        return len(self._free) + len(self._cached)

    def counts(self) -> BlockCounts:
        free, cached = len(self._free), len(self._cached)
        return BlockCounts(free, cached, self.num_blocks - free - cached)

    def ref_count(self, block: int) -> int:
        return self._ref_counts[block]

    @property
    def num_named(self) -> int:
        """The number of blocks with a key."""
        return len(self._by_key)

    def some(self, first: int, last: int, step: int) -> tuple[list[int], list[bytes | None]]:
        """Return how often blocks are held, and their keys: of every ``step``-th block from
        ``first`` to before ``last``."""
        return self._ref_counts[first:last:step], self._keys[first:last:step]

    def find(self, key: bytes) -> int | None:
        """Return the block whose contents have this key, if any."""
        return self._by_key.get(key)

    def allocate(self) -> int:
        """Return a block held once, dropping its old contents. Raises OutOfBlocksError."""
        if self._free:
            block = self._free.pop()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            key = self._keys[block]
            assert key is not None, "a cached block without a key"
            del self._by_key[key]
            self._keys[block] = None
            self.evictions += 1
            self.on_evicted(block, key)
        else:
            raise OutOfBlocksError(f"all {self.num_blocks} KV-cache blocks are held")
        self._ref_counts[block] = 1
        return block

    def allocate_all(self, count: int) -> list[int]:
        """Return ``count`` blocks. Raises OutOfBlocksError, and then takes none."""
        if count > self.num_available:
            raise OutOfBlocksError(
                f"{count} KV-cache blocks are needed, {self.num_available} are available"
            )
        return [self.allocate() for _ in range(count)]

    def share(self, block: int) -> None:
        """Hold an active or cached block once more."""
        if self._ref_counts[block] == 0:
            if self._keys[block] is None:
                raise ValueError(f"block {block} is free: it holds nothing to share")
            del self._cached[block]
        self._ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Release one hold. After the last one, a block with a key is cached, otherwise it is
        free."""
        count = self._ref_counts[block] - 1
        if count < 0:
            raise ValueError(f"block {block} is not held")
        self._ref_counts[block] = count
        if count == 0:
            if self._keys[block] is None:
                self._free.append(block)
            else:
                self._cached[block] = None

    def name(self, block: int, key: bytes) -> bool:
        """Record that an active block now has the contents ``key``.

        Returns False if another block already has them (the first is kept: sequences may be sharing
        it), or if this block already has that key.
        """
        if self._ref_counts[block] == 0:
            raise ValueError(f"block {block} is not held")
        if key in self._by_key:
            return False
        if self._keys[block] is not None:
            raise ValueError(f"block {block} already holds other contents")
        self._keys[block] = key
        self._by_key[key] = block
        return True
