"""Builds ``Rows`` and ``Ragged``: block tables for code that reads the cache in place."""

from __future__ import annotations

import numpy as np
import torch

from engine.attention.layout import BatchRows, BatchTensors, Ragged, Rows
from engine.attention.packing import Int64Array, int32, widened
from engine.device.sending import sent


class RowsBuilder:
    """Builds ``Rows``, for a CPU."""

    def build(self, rows: BatchRows) -> BatchTensors:
        sequences = np.repeat(np.arange(len(rows.sizes)), rows.sizes)
        longest = int(np.max(rows.positions, initial=0)) + 1
        return BatchTensors(
            torch.from_numpy(rows.token_ids),
            torch.from_numpy(rows.positions),
            Rows(torch.from_numpy(_all_tables(rows)), torch.from_numpy(sequences), longest),
            [torch.from_numpy(array) for array in rows.extras],
        )


class RaggedBuilder:
    """Builds ``Ragged``; everything reaches the device in one copy."""

    def __init__(self, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device

    def build(self, rows: BatchRows) -> BatchTensors:
        chunks = rows.chunks
        sizes = [chunk.num_tokens for chunk in chunks]
        contexts = [chunk.start + chunk.num_tokens for chunk in chunks]
        width = max((len(chunk.blocks) for chunk in chunks), default=1)
        chunk_blocks = np.zeros((len(chunks), width), dtype=np.int32)
        for table, chunk in zip(chunk_blocks, chunks, strict=True):
            table[: len(chunk.blocks)] = chunk.blocks
        decoding = len(rows.starts)
        arrays = (
            rows.token_ids,
            rows.positions,
            rows.blocks * self._block_size + rows.offsets,
            rows.starts + 1,
            widened(rows.tables[:decoding]),
            np.array(contexts, dtype=np.int32),
            widened(chunk_blocks),
            decoding + np.cumsum([0, *sizes], dtype=np.int32),
        )
        there = sent([*map(int32, arrays), *rows.extras], self._device)
        token_ids, positions, slots, lengths, tables, *chunk_parts = there[: len(arrays)]
        chunk_lengths, chunk_tables, cu_seqlens = chunk_parts
        ragged = Ragged(
            slots,
            lengths,
            tables,
            chunk_lengths,
            chunk_tables,
            cu_seqlens,
            longest=max(sizes, default=0),
            sizes=tuple(sizes),
            num_fresh=sum(chunk.start == 0 for chunk in chunks),
            contexts=tuple(contexts),
        )
        return BatchTensors(token_ids, positions, ragged, there[len(arrays) :])


def _all_tables(rows: BatchRows) -> Int64Array:
    """Return the block tables of the decode rows and of the chunks as one array."""
    decoding, blocks = len(rows.starts), rows.tables
    if not rows.chunks:
        return blocks
    width = max(blocks.shape[1], *(len(chunk.blocks) for chunk in rows.chunks))
    tables = np.zeros((decoding + len(rows.chunks), width), dtype=np.int64)
    tables[:decoding, : blocks.shape[1]] = blocks[:decoding]
    for place, chunk in enumerate(rows.chunks, decoding):
        tables[place, : len(chunk.blocks)] = chunk.blocks
    return tables
