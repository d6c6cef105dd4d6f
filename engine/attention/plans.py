"""Builds ``Plans``: which contexts are gathered together, and how they are masked."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Items

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.architecture.features import AttentionChunk, AttentionWindow
from engine.attention.layout import (
    BatchRows,
    BatchTensors,
    CacheShape,
    DecodeGroup,
    Plans,
    PrefillTile,
    PromptChunk,
    WindowPlan,
)
from engine.attention.mirror import ContextMirror, MirrorPart
from engine.attention.packing import Int64Array
from engine.device.sending import sent, sent_one

# Rows of a masked prefill tile. It bounds the mask to TILE x context elements.
TILE = 256
# Decode rows share one padded gather while padding stays below this share of it.
MAX_PADDING = 0.4


def split_by_length(lengths: Items[int]) -> list[tuple[int, int]]:
    """Split ``lengths`` (decreasing) into ranges such that padding each range to its longest wastes
    at most ``MAX_PADDING`` of it. A new range starts only if the rest justifies another gather."""
    ranges = []
    first, total = 0, 0
    for i, length in enumerate(lengths):
        padded = lengths[first] * (i - first + 1)
        if i > first and padded - total - length > MAX_PADDING * padded:
            ranges.append((first, i))
            first, total = i, 0
        total += length
    if lengths:
        ranges.append((first, len(lengths)))
    return ranges


def first_seen(window: AttentionWindow, positions: Int64Array) -> Int64Array:
    """Return the first position that a token at each of ``positions`` attends to."""
    if window is None:
        return np.zeros_like(positions)
    if isinstance(window, AttentionChunk):
        return positions // window.size * window.size
    return np.maximum(positions - window + 1, 0)


class PlanBuilder:
    """Builds ``Plans`` on the host and moves them to ``device``."""

    def __init__(
        self,
        shape: CacheShape,
        windows: Items[AttentionWindow],
        dtype: torch.dtype,
        device: torch.device,
        mirror: ContextMirror | None = None,
    ) -> None:
        self._shape = shape
        self._mirror = mirror
        self._windows = tuple(dict.fromkeys(windows))
        self._dtype = dtype
        self._device = device

    def build(self, rows: BatchRows) -> BatchTensors:
        token_ids, positions, *extras = sent(
            (rows.token_ids, rows.positions, *rows.extras), self._device
        )
        plans = Plans(
            self.slots(rows.blocks, rows.offsets),
            self.plans(rows.starts + 1, rows.tables, rows.chunks, rows.row_key),
        )
        return BatchTensors(token_ids, positions, plans, extras)

    def slots(self, blocks: Int64Array, offsets: Int64Array) -> Tensor:
        """Return each token's slot for ``PagedKVCache.store``, given its block number and offset
        in the block."""
        return self._tensor(self._shape.slots(blocks, offsets).reshape(-1))

    def plans(
        self,
        lengths: Int64Array,
        tables: Int64Array,
        chunks: Items[PromptChunk],
        row_key: Hashable = None,
    ) -> dict[AttentionWindow, WindowPlan]:
        """Return the plan for each window. ``lengths`` [sequences]: the context of each
        decode row, including its own token, decreasing; ``tables`` [sequences, blocks]: their block
        tables, with arbitrary padding; ``row_key`` identifies the decode rows (for
        ``ContextMirror``; None: unknown)."""
        ranges = split_by_length(lengths.tolist())
        parts: Items[MirrorPart] | None = None
        if self._mirror is not None and row_key is not None:
            parts = self._mirror.arrange(row_key, ranges, lengths)
        none = (None,) * len(ranges)
        return {
            window: WindowPlan(
                decode=tuple(
                    self._decode_group(first, last, lengths, tables, window, part)
                    for (first, last), part in zip(
                        ranges, parts if parts and window is None else none, strict=True
                    )
                ),
                prefill=tuple(
                    tile for chunk in chunks for tile in self._prefill_tiles(chunk, window)
                ),
            )
            for window in self._windows
        }

    def _decode_group(
        self,
        first: int,
        last: int,
        lengths: Int64Array,
        tables: Int64Array,
        window: AttentionWindow,
        part: MirrorPart | None,
    ) -> DecodeGroup:
        size = self._shape.block_size
        ends = lengths[first:last]
        starts = first_seen(window, ends - 1)
        first_blocks = starts // size
        last_blocks = (ends - 1) // size
        rows = None
        if part is None or part.fills:
            num_blocks = int(np.max(last_blocks - first_blocks)) + 1
            columns = first_blocks[:, None] + np.arange(part.capacity if part else num_blocks)
            # Pad with the row's own last block, so that no other sequence's block is read.
            columns = np.minimum(columns, last_blocks[:, None])
            blocks = np.take_along_axis(tables[first:last], columns, axis=1)
            rows = self._tensor(self._shape.rows(blocks).reshape(-1))
        ends, starts = ends - first_blocks * size, starts - first_blocks * size
        length = int(np.max(ends))
        mask = None
        if starts.any() or (ends != length).any():
            keys = np.arange(length)
            hidden = (keys >= ends[:, None]) | (keys < starts[:, None])
            mask = self._mask(hidden)[:, None, None, :]
        return DecodeGroup(first, last, rows, length, mask, part)

    def _prefill_tiles(self, chunk: PromptChunk, window: AttentionWindow) -> list[PrefillTile]:
        row, count = chunk.first_row, chunk.num_tokens
        if chunk.start == 0 and first_seen(window, np.array(count - 1)) == 0:
            return [PrefillTile(row, row + count, None, row, count, None)]
        return [
            self._masked_tile(chunk, offset, min(offset + TILE, count), window)
            for offset in range(0, count, TILE)
        ]

    def _masked_tile(
        self, chunk: PromptChunk, offset: int, end: int, window: AttentionWindow
    ) -> PrefillTile:
        first, last = chunk.start + offset, chunk.start + end
        queries = np.arange(first, last)[:, None]
        starts = first_seen(window, queries)
        low = int(starts[0, 0])
        keys = np.arange(low, last)
        hidden = (keys > queries) | (keys < starts)
        mask = self._mask(hidden)
        row = chunk.first_row
        if chunk.start == 0:
            return PrefillTile(row + offset, row + end, None, row + low, last - low, mask)
        size = self._shape.block_size
        blocks = chunk.blocks[low // size : (last - 1) // size + 1]
        rows = self._tensor(self._shape.rows(blocks[None]).reshape(-1))
        return PrefillTile(row + offset, row + end, rows, low % size, last - low, mask)

    def _mask(self, hidden: NDArray[np.bool_]) -> Tensor:
        there = sent_one(hidden, self._device)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(there, float("-inf"))

    def _tensor(self, values: Int64Array) -> Tensor:
        return sent_one(values, self._device)
