"""How a step's batch is laid out for attention: computed once, used by every layer.

There are four kinds of decoder, each with its own layout (``Decoder.layout_type``).
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.architecture.features import AttentionWindow
from engine.attention.mirror import MirrorPart
from engine.attention.packing import Int64Array
from engine.step.step import ScheduledSequence


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How blocks are numbered inside ``PagedKVCache``."""

    block_size: int
    num_kv_heads: int

    def rows(self, blocks: Int64Array) -> Int64Array:
        """Return row numbers [2, sequences, kv_heads, blocks] for block numbers
        [sequences, blocks]."""
        heads = np.arange(self.num_kv_heads, dtype=np.int64)
        halves = np.arange(2, dtype=np.int64)
        first = blocks[None, :, None, :] * (2 * self.num_kv_heads)
        return first + (halves[:, None] * self.num_kv_heads + heads)[:, None, :, None]

    def slots(self, blocks: Int64Array, offsets: Int64Array) -> Int64Array:
        """Return slot numbers [tokens, 2 * kv_heads] for each token's block and offset."""
        rows = np.arange(2 * self.num_kv_heads, dtype=np.int64)
        first = blocks[:, None] * (2 * self.num_kv_heads) + rows
        return first * self.block_size + offsets[:, None]


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Tokens [first, last) of the batch, one per sequence, whose contexts are gathered together.

    ``rows``: for ``PagedKVCache.gather``; None if ``mirror`` already holds the contexts.
    ``length``: how many of the gathered keys to use. ``mask``: added to the scores, float
    [sequences, 1, 1, length]; None if nothing is padded.
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

    ``rows`` None: its keys are tokens [first_key, last) of this batch (nothing was cached before).
    Otherwise they are tokens [first_key, first_key + num_keys) of the gathered blocks.
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
    """How layers with the same window attend in this step."""

    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillTile, ...]


@dataclass(frozen=True, slots=True)
class Plans:
    """For decoders in plain torch. ``slots``: where ``PagedKVCache.store`` writes this step's keys
    and values. ``by_window``: by which tokens one attends to."""

    slots: Tensor
    by_window: dict[AttentionWindow, WindowPlan]


@dataclass(frozen=True, slots=True)
class GroupedPlans:
    """For decoders in plain torch whose layers differ in shape: the plans of each group of equal
    layers (see ``engine.attention.groups``). ``items``: whose rows they are, in batch order."""

    groups: tuple[Plans, ...]
    items: tuple[ScheduledSequence, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """For a decoder that looks up each row's keys itself. ``blocks``: int64 [sequences, blocks],
    with arbitrary padding; ``sequences``: int64 [rows], the index of each row's sequence;
    ``longest``: tokens of the longest context, including this step's."""

    blocks: Tensor
    sequences: Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class Ragged:
    """For kernels that read block tables in place. All tensors are int32 and on the device, as are
    token ids and positions. The batch begins with the rows of ``decode_lengths``' sequences, one
    each; the chunks' rows follow.

    ``slots`` [rows]: block * block_size + offset, where each row's keys and values are stored;
    negative: they are not stored. Lengths are those of contexts, including this step's tokens;
    tables [sequences, blocks] have arbitrary padding. ``cu_seqlens`` [chunks + 1]: rows
    [cu_seqlens[i], cu_seqlens[i + 1]) of the batch belong to chunk i. ``longest``: rows of the
    longest chunk; 0: there are no chunks. On the host: ``sizes``, rows of each chunk;
    ``num_fresh``, how many of the last ones are a context's beginning; ``contexts``, tokens of each
    chunk's context, including this step's.
    """

    slots: Tensor
    decode_lengths: Tensor
    decode_blocks: Tensor
    chunk_lengths: Tensor
    chunk_blocks: Tensor
    cu_seqlens: Tensor
    longest: int
    sizes: tuple[int, ...] = ()
    num_fresh: int = 0
    contexts: tuple[int, ...] = ()


Layout = Plans | GroupedPlans | Rows | Ragged

LayoutT = TypeVar("LayoutT", Plans, GroupedPlans, Rows, Ragged)


def expect(layout_type: type[LayoutT], layout: Layout) -> LayoutT:
    """Return ``layout``, which must be of that type."""
    if not isinstance(layout, layout_type):
        found, wanted = type(layout).__name__, layout_type.__name__
        raise ValueError(f"the batch is laid out as {found}, but the decoder reads {wanted}")
    return layout


# --- what a layout is built from ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Tokens [start, start + num_tokens) of a sequence, at rows [first_row, ...) of the batch."""

    first_row: int
    start: int
    num_tokens: int
    blocks: Int64Array  # the sequence's block table


class BatchRows(NamedTuple):
    """A step's rows on the host: first the decode rows, one per sequence, by decreasing context
    length, then those of ``chunks``. ``blocks`` and ``offsets``: the block that a row's keys and
    values are stored in, and the offset in it. ``sizes``: rows of each sequence.

    For the decode rows only: ``starts``, their positions; ``tables`` [sequences, blocks], block
    tables with arbitrary padding; ``row_key``, equal as long as the rows are the same sequences in
    the same blocks and order (None: unknown).

    ``extras``: other arrays that the step needs on the device, to be sent with the rest.
    ``items``: whose rows they are."""

    token_ids: Int64Array
    positions: Int64Array
    blocks: Int64Array
    offsets: Int64Array
    sizes: Int64Array
    starts: Int64Array
    tables: Int64Array
    chunks: Items[PromptChunk]
    row_key: Hashable
    extras: Items[NDArray[Any]] = ()
    items: Items[ScheduledSequence] = ()


class BatchTensors(NamedTuple):
    """Token ids and positions [rows], the layout that attention needs, and what was sent along."""

    token_ids: Tensor
    positions: Tensor
    layout: Layout
    extras: list[Tensor]


class LayoutBuilder(Protocol):
    """Builds one type of ``Layout``."""

    def build(self, rows: BatchRows) -> BatchTensors: ...
