"""Contiguous copies of the contexts of decoding sequences, so that steps need not gather them.

On a CPU, gathering every context's blocks in every layer of every step takes as long as attention
itself. While the same sequences decode step after step, their contexts are kept contiguous, and
each step adds one token. The blocks remain authoritative; a copy is dropped whenever the decode
rows change, and made again once they have been the same for two steps.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engine.attention.packing import Int64Array

# Room for growth in a new copy, as a share of its blocks; a larger share makes it last longer.
_HEADROOM = 0.25


@dataclass(frozen=True, slots=True)
class MirrorShape:
    """A copy's size per layer; ``layers`` are the numbers of the layers that are copied."""

    layers: tuple[int, ...]
    num_kv_heads: int
    block_size: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class MirrorPart:
    """The memory of one decode group: ``capacity`` blocks for each of ``sequences``, starting at
    element ``offset``. ``slots``: the rows of ``head_dim`` elements, counted from there, for this
    step's keys and values, int64 [sequences * 2 * kv_heads]. ``fills``: the contexts must still be
    copied."""

    offset: int
    sequences: int
    capacity: int
    slots: Tensor
    fills: bool


@dataclass(slots=True)
class _Arrangement:
    """The rows, and how many tokens each has after the most recent step."""

    row_key: Hashable
    ranges: list[tuple[int, int]]
    lengths: Int64Array
    capacities: list[int] = field(default_factory=list)  # blocks; empty: there are no copies
    filled: set[int] = field(default_factory=set)  # layers

    def holds(self, blocks: Items[int], layers: Items[int]) -> bool:
        """Whether there are copies in all ``layers`` with room for this many ``blocks``."""
        if not self.capacities or self.filled != set(layers):
            return False
        return all(need <= have for need, have in zip(blocks, self.capacities, strict=True))


class ContextMirror:
    """Keys and values, per layer and group [2, sequences, kv_heads, tokens, head_dim].

    Uses at most ``max_bytes`` of memory over all layers, allocated on first use and reused.
    """

    def __init__(self, shape: MirrorShape, *, max_bytes: int, dtype: torch.dtype) -> None:
        self._shape = shape
        self._capacity = max_bytes // max(1, len(shape.layers)) // dtype.itemsize
        self._arenas = {layer: torch.empty(self._capacity, dtype=dtype) for layer in shape.layers}
        self._now = _Arrangement((), [], np.zeros(0, np.int64))

    def arrange(
        self, row_key: Hashable, ranges: list[tuple[int, int]], lengths: Int64Array
    ) -> list[MirrorPart] | None:
        """Return the memory for the groups ``ranges`` of decode rows, or None if their contexts
        must be gathered. ``lengths``: of the contexts, including this step's token; ``row_key``
        identifies the rows and their order."""
        before, self._now = self._now, _Arrangement(row_key, ranges, lengths)
        if before.row_key != row_key or before.ranges != ranges:
            return None
        grown = lengths - before.lengths
        if not ((grown == 0) | (grown == 1)).all():
            return None
        blocks = [int(-(-lengths[first] // self._shape.block_size)) for first, _ in ranges]
        if before.holds(blocks, self._shape.layers):
            self._now.capacities, self._now.filled = before.capacities, before.filled
            return self._parts(ranges, lengths, before.capacities, fills=False)
        capacities = [need + max(2, int(need * _HEADROOM)) for need in blocks]
        counts = [last - first for first, last in ranges]
        if sum(map(self._elements, counts, capacities)) > self._capacity:
            return None
        self._now.capacities, self._now.filled = capacities, set()
        return self._parts(ranges, lengths, capacities, fills=True)

    def context(self, layer: int, part: MirrorPart) -> Tensor:
        """Return the part's memory, [2 * sequences * kv_heads * capacity,
        block_size * head_dim]."""
        size = self._elements(part.sequences, part.capacity)
        return self._arenas[layer][part.offset : part.offset + size].view(
            -1, self._shape.block_size * self._shape.head_dim
        )

    def mark_filled(self, layer: int) -> None:
        self._now.filled.add(layer)

    def _elements(self, sequences: int, blocks: int) -> int:
        shape = self._shape
        return 2 * sequences * shape.num_kv_heads * blocks * shape.block_size * shape.head_dim

    def _parts(
        self,
        ranges: Items[tuple[int, int]],
        lengths: Int64Array,
        capacities: Items[int],
        *,
        fills: bool,
    ) -> list[MirrorPart]:
        parts, offset = [], 0
        for (first, last), capacity in zip(ranges, capacities, strict=True):
            slots = self._slots(lengths[first:last], capacity)
            parts.append(MirrorPart(offset, last - first, capacity, slots, fills))
            offset += self._elements(last - first, capacity)
        return parts

    def _slots(self, lengths: Int64Array, capacity: int) -> Tensor:
        """Where each sequence's last token is stored: per sequence, the heads of its keys, then
        those of its values."""
        count, heads = len(lengths), self._shape.num_kv_heads
        tokens = capacity * self._shape.block_size
        head = np.arange(2 * heads, dtype=np.int64)
        half, head = head // heads, head % heads
        row = (half * count + np.arange(count)[:, None]) * heads + head
        return torch.from_numpy((row * tokens + (lengths - 1)[:, None]).reshape(-1))
