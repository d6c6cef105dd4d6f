"""What attention needs to know of a step's batch, computed once and used by every layer."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.mirror import ContextMirror, MirrorPart

Int64Array = NDArray[np.int64]

# Rows of a masked prefill tile: bounds the mask to TILE x context elements.
TILE = 256
# Decode rows share one padded gather while padding stays below this share of it.
MAX_PADDING = 0.4


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How blocks are numbered inside ``PagedKVCache``."""

    block_size: int
    num_kv_heads: int

    def rows(self, blocks: Int64Array) -> Int64Array:
        """Row numbers [2, sequences, kv_heads, blocks] for block numbers [sequences, blocks]."""
        heads = np.arange(self.num_kv_heads, dtype=np.int64)
        halves = np.arange(2, dtype=np.int64)
        first = blocks[None, :, None, :] * (2 * self.num_kv_heads)
        return first + (halves[:, None] * self.num_kv_heads + heads)[:, None, :, None]

    def slots(self, blocks: Int64Array, offsets: Int64Array) -> Int64Array:
        """Slot numbers [tokens, 2 * kv_heads] for each token's block and offset in it."""
        rows = np.arange(2 * self.num_kv_heads, dtype=np.int64)
        first = blocks[:, None] * (2 * self.num_kv_heads) + rows
        return first * self.block_size + offsets[:, None]


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Tokens [first, last) of the batch, one a sequence, whose contexts are gathered together.

    ``rows``: for ``PagedKVCache.gather``; None where ``mirror`` holds the contexts already.
    ``length``: keys to keep of the gathered ones. ``mask``: added to the scores, float
    [sequences, 1, 1, length], None when nothing is padded.
    """

    first: int
    last: int
    rows: Tensor | None
    length: int
    mask: Tensor | None
    mirror: MirrorPart | None = None


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """Tokens [first, last) of the batch, adjacent in one sequence.

    ``rows`` None: its keys are tokens [first_key, last) of this very batch (nothing was cached
    before). Otherwise the gathered blocks' tokens [first_key, first_key + num_keys).
    ``mask``: float [last - first, num_keys]; None: plain causal, as many keys as queries.
    """

    first: int
    last: int
    rows: Tensor | None
    first_key: int
    num_keys: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """How layers with one sliding window (or none) attend in this step."""

    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillTile, ...]


@dataclass(frozen=True, slots=True)
class RowTables:
    """For a decoder whose every row finds its own way to its keys. ``blocks``: int64
    [sequences, blocks], padded with anything; ``sequences``: int64 [rows], which of them is the
    row's; ``longest``: tokens of the longest context, this step's included."""

    blocks: Tensor
    sequences: Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class RaggedTables:
    """For kernels that read block tables in place; int32, on the device. The batch's first rows
    are ``decode_lengths``' sequences, one each; the chunks' rows follow.

    ``slots`` [rows]: block * block_size + place in it, where each row's keys and values go;
    negative: nowhere. Lengths are those of contexts, this step's tokens included; tables
    [sequences, blocks] are padded with anything. ``cu_seqlens`` [chunks + 1]: rows
    [cu_seqlens[i], cu_seqlens[i + 1]) of the batch are chunk i's. ``longest``: rows of the longest
    chunk; 0: there are none.
    """

    slots: Tensor
    decode_lengths: Tensor
    decode_blocks: Tensor
    chunk_lengths: Tensor
    chunk_blocks: Tensor
    cu_seqlens: Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """``slots``: where this step's keys and values go, for ``PagedKVCache.store``.
    ``plans``: by sliding window (tokens; None: unlimited). Instead of both, ``tables`` for a
    decoder that ``attends_by_rows`` and ``ragged`` for one that ``attends_ragged``."""

    slots: Tensor
    plans: dict[int | None, WindowPlan]
    tables: RowTables | None = None
    ragged: RaggedTables | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, start + num_tokens) of a sequence, at rows [first_row, ...) of the batch."""

    first_row: int
    start: int
    num_tokens: int
    blocks: Int64Array  # the sequence's block table


def split_by_length(lengths: Items[int]) -> list[tuple[int, int]]:
    """Ranges of ``lengths`` (falling) such that padding each range to its longest wastes at most
    ``MAX_PADDING`` of it. A new range starts only where the rest is worth a gather of its own."""
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


class MetadataBuilder:
    """Builds a step's metadata on the host and moves it to ``device``."""

    def __init__(
        self,
        shape: CacheShape,
        windows: Items[int | None],
        dtype: torch.dtype,
        device: torch.device,
        mirror: ContextMirror | None = None,
    ) -> None:
        self._shape = shape
        self._mirror = mirror
        self._windows = tuple(dict.fromkeys(windows))
        self._dtype = dtype
        self._device = device

    def slots(self, blocks: Int64Array, offsets: Int64Array) -> Tensor:
        """For ``PagedKVCache.store``: each token's block number and offset in the block."""
        return self._tensor(self._shape.slots(blocks, offsets).reshape(-1))

    def plans(
        self,
        lengths: Int64Array,
        tables: Int64Array,
        chunks: Items[Chunk],
        company: Hashable = None,
    ) -> dict[int | None, WindowPlan]:
        """``lengths`` [sequences]: context of each decode row, its own token included, falling;
        ``tables`` [sequences, blocks]: their block tables, padded with anything; ``company``
        tells who the decode rows are (for ``ContextMirror``; None: nobody known)."""
        ranges = split_by_length(lengths.tolist())
        parts: Items[MirrorPart] | None = None
        if self._mirror is not None and company is not None:
            parts = self._mirror.arrange(company, ranges, lengths)
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
        window: int | None,
        part: MirrorPart | None,
    ) -> DecodeGroup:
        size = self._shape.block_size
        ends = lengths[first:last]
        starts = np.zeros_like(ends) if window is None else np.maximum(ends - window, 0)
        first_blocks = starts // size
        last_blocks = (ends - 1) // size
        rows = None
        if part is None or part.fills:
            num_blocks = int(np.max(last_blocks - first_blocks)) + 1
            columns = first_blocks[:, None] + np.arange(part.capacity if part else num_blocks)
            # Padding repeats the row's own last block: whatever other sequences hold stays apart.
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

    def _prefill_tiles(self, chunk: Chunk, window: int | None) -> list[PrefillTile]:
        row, count = chunk.first_row, chunk.num_tokens
        if chunk.start == 0 and (window is None or count <= window):
            return [PrefillTile(row, row + count, None, row, count, None)]
        return [
            self._masked_tile(chunk, offset, min(offset + TILE, count), window)
            for offset in range(0, count, TILE)
        ]

    def _masked_tile(self, chunk: Chunk, offset: int, end: int, window: int | None) -> PrefillTile:
        first, last = chunk.start + offset, chunk.start + end
        low = 0 if window is None else max(0, first - window + 1)
        queries = np.arange(first, last)[:, None]
        keys = np.arange(low, last)
        hidden = keys > queries
        if window is not None:
            hidden |= keys <= queries - window
        mask = self._mask(hidden)
        row = chunk.first_row
        if chunk.start == 0:
            return PrefillTile(row + offset, row + end, None, row + low, last - low, mask)
        size = self._shape.block_size
        blocks = chunk.blocks[low // size : (last - 1) // size + 1]
        rows = self._tensor(self._shape.rows(blocks[None]).reshape(-1))
        return PrefillTile(row + offset, row + end, rows, low % size, last - low, mask)

    def _mask(self, hidden: NDArray[np.bool_]) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self._dtype)
        mask.masked_fill_(torch.from_numpy(hidden), float("-inf"))
        return mask.to(self._device, non_blocking=True)

    def _tensor(self, values: Int64Array) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)
