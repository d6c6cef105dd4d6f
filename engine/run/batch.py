"""Converts a step's plan to the arrays that the model reads.

Rows are ordered: sequences that compute one token (decode rows) by decreasing context length, then
longer pieces of prompts (chunks), those that begin a context last and by size. As long as the
decode rows stay the same sequences, as in most steps, their order and block tables are kept and
only patched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.attention.layout import BatchRows, Layout, LayoutBuilder, PromptChunk
from engine.attention.packing import Int64Array
from engine.run.lookups import Lookups
from engine.sampling.device import Draws
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan

Key = tuple[tuple[int, int], ...]


class StepBatch(NamedTuple):
    """``order[i]`` is the index in the plan of the i-th item in batch order, ``last_rows[i]`` the
    row of its last token. ``fresh_blocks``: blocks whose first slot is written in this step.

    ``kept``: the rows whose final states are needed (None: all); ``hidden_rows[i]``: the index
    among them of item i's last token. ``sampling``: the items that get a token; ``sampling_rows``:
    theirs (None: all that are kept, in order); ``draws``: for the sampling kernel, if it is used.
    ``pending``: rows whose token only the device knows, and its place in ``NewestTokens``.
    """

    items: tuple[ScheduledSequence, ...]  # in batch order
    order: tuple[int, ...]
    last_rows: Int64Array
    token_ids: Tensor  # int64 [rows]; int32 with ``Ragged``
    positions: Tensor  # the same
    layout: Layout
    fresh_blocks: Int64Array
    kept: Tensor | None
    hidden_rows: Int64Array
    sampling: tuple[int, ...]
    sampling_rows: Tensor | None
    draws: Draws | None
    pending: tuple[Tensor, Tensor] | None


class BlockTables:
    """The block tables of the decode rows as one array, patched as sequences grow."""

    def __init__(self, items: Items[ScheduledSequence]) -> None:
        tables = [item.sequence.block_table for item in items]
        self._sizes = [len(table) for table in tables]
        self._last = [table[-1] for table in tables]
        width = max(self._sizes, default=0) + 4
        self.array = np.zeros((len(tables), width), dtype=np.int64)
        for row, table in enumerate(tables):
            self.array[row, : len(table)] = table

    def update(self, items: Items[ScheduledSequence]) -> None:
        """``items``: the same sequences in the same order, possibly with more blocks."""
        for row, item in enumerate(items):
            table = item.sequence.block_table
            if len(table) == self._sizes[row] and table[-1] == self._last[row]:
                continue
            self._sizes[row], self._last[row] = len(table), table[-1]
            if len(table) > self.array.shape[1]:
                self.array = np.pad(self.array, ((0, 0), (0, self.array.shape[1])))
            self.array[row, : len(table)] = table


class BatchBuilder:
    """Builds one step's batch after another. Building the same plan twice is harmless."""

    def __init__(
        self, layouts: LayoutBuilder, *, block_size: int, draws_from: int | None = None
    ) -> None:
        """``draws_from``: the vocabulary's size, if tokens are sampled by the kernel."""
        self._layouts = layouts
        self._draws_from = draws_from
        self._block_size = block_size
        self._key: Key = ()
        self._decode: list[int] = []  # places in the plan of the decode rows, in plan order
        self._order: tuple[int, ...] = ()
        self._row_key: Key = ()  # the decode rows in batch order
        self._tables = BlockTables(())

    def build(
        self,
        plan: StepPlan,
        places: Mapping[int, int] | None = None,
        needs_every_row: Callable[[ScheduledSequence], bool] = lambda item: False,
    ) -> StepBatch:
        """``places``: by uid, where ``NewestTokens`` has the tokens that are ``PENDING`` here; None
        if none is. ``needs_every_row``: whether the final states of all of an item's rows are
        needed, not only the last one's. Raises KeyError for a pending token without a place."""
        decode, chunks = self._split(plan)
        items = [plan.scheduled[place] for place in decode]
        count = len(items)
        starts = np.fromiter((item.start for item in items), np.int64, count)
        tokens = np.fromiter(
            (item.sequence.token_ids[item.start] for item in items), np.int64, count
        )
        parts = _Parts(
            token_ids=[tokens],
            positions=[starts],
            blocks=[self._tables.array[np.arange(count), starts // self._block_size]],
        )
        pieces = []
        for place in chunks:
            item = plan.scheduled[place]
            pieces.append(self._append(parts, item, count))
            count += item.num_tokens
            items.append(item)
        token_ids, positions, blocks = parts.joined()
        sizes = np.fromiter((item.num_tokens for item in items), np.int64, len(items))
        last_rows = sizes.cumsum() - 1
        every_row = any(needs_every_row(plan.scheduled[place]) for place in chunks)
        lookups = Lookups.of(items, last_rows, len(token_ids), places, every_row=every_row)
        rows = BatchRows(
            token_ids,
            positions,
            blocks,
            positions % self._block_size,
            sizes,
            starts=starts,
            tables=self._tables.array,
            chunks=pieces,
            row_key=self._row_key,
            extras=lookups.arrays(self._draws_from),
            items=items,
        )
        tensors = self._layouts.build(rows)
        kept, sampling_rows, pending, draws = lookups.sent(tensors.extras)
        return StepBatch(
            tuple(items),
            (*decode, *chunks),
            last_rows,
            *tensors[:3],
            fresh_blocks=blocks[rows.offsets == 0],
            kept=kept,
            hidden_rows=lookups.hidden_rows,
            sampling=lookups.sampling,
            sampling_rows=sampling_rows,
            draws=draws,
            pending=pending,
        )

    def _split(self, plan: StepPlan) -> tuple[tuple[int, ...], list[int]]:
        """Return the plan indices of the decode rows, in batch order, and of the chunks."""
        scheduled = plan.scheduled
        decode = [place for place, item in enumerate(scheduled) if item.num_tokens == 1]
        chunks = [place for place, item in enumerate(scheduled) if item.num_tokens != 1]
        if len(chunks) > 1:
            chunks.sort(key=lambda place: _place_of_chunk(scheduled[place]))
        key = tuple(_identity(scheduled[place].sequence) for place in decode)
        # The same sequences may have other positions in the plan, before or after a chunk.
        if (
            key != self._key
            or decode != self._decode
            or not _is_by_falling_length(scheduled, self._order)
        ):
            self._key, self._decode = key, decode
            self._order = tuple(sorted(decode, key=lambda place: -scheduled[place].start))
            self._tables = BlockTables([scheduled[place] for place in self._order])
            self._row_key = tuple(_identity(scheduled[place].sequence) for place in self._order)
        else:
            self._tables.update([scheduled[place] for place in self._order])
        return self._order, chunks

    def _append(self, parts: _Parts, item: ScheduledSequence, first_row: int) -> PromptChunk:
        sequence, start, end = item.sequence, item.start, item.start + item.num_tokens
        positions = np.arange(start, end)
        table = np.array(sequence.block_table, dtype=np.int64)
        parts.token_ids.append(np.array(sequence.token_ids[start:end], dtype=np.int64))
        parts.positions.append(positions)
        parts.blocks.append(table[positions // self._block_size])
        return PromptChunk(first_row, start, item.num_tokens, table)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Token ids, positions and block numbers of rows, collected piece by piece."""

    token_ids: list[Int64Array]
    positions: list[Int64Array]
    blocks: list[Int64Array]

    def joined(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        if len(self.token_ids) == 1:
            return self.token_ids[0], self.positions[0], self.blocks[0]
        return (
            np.concatenate(self.token_ids),
            np.concatenate(self.positions),
            np.concatenate(self.blocks),
        )


def _identity(sequence: Sequence) -> tuple[int, int]:
    """Identify a sequence; after a preemption it has other blocks, so it counts as a different
    one."""
    return sequence.uid, sequence.num_preemptions


def _place_of_chunk(item: ScheduledSequence) -> tuple[bool, int]:
    """Return what chunks are sorted by; those that continue a context keep their order."""
    return item.start == 0, item.num_tokens if item.start == 0 else 0


def _is_by_falling_length(scheduled: Items[ScheduledSequence], order: Items[int]) -> bool:
    """True if ``order`` lists the rows by decreasing length."""
    starts = [scheduled[place].start for place in order]
    return all(a >= b for a, b in pairwise(starts))
