"""Places a whole step's batch, which has just been sent, where a recorded step reads it."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention.layout import Ragged

_BLOCK = 128
_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class StaticBatch:
    """Memory for batches of up to as many rows as ``token_ids`` has. All but ``kept`` is int32 and
    as in ``engine.attention.layout.Ragged``; what a batch does not fill is padding.

    ``token_ids``, ``positions`` and ``slots`` [rows]; ``lengths`` [decode rows] and ``tables``
    [decode rows, blocks] of sequences with one row; ``chunk_lengths`` [chunks], ``chunk_tables``
    [chunks, blocks] and ``cu_seqlens`` [chunks + 1]; ``kept``, int64 [decode rows]: the rows whose
    final states are needed.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    lengths: Tensor
    tables: Tensor
    chunk_lengths: Tensor
    chunk_tables: Tensor
    cu_seqlens: Tensor
    kept: Tensor

    @classmethod
    def empty(
        cls, *, rows: int, decodes: int, chunks: int, blocks: int, device: torch.device
    ) -> "StaticBatch":
        """Return padding only."""

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        return cls(
            token_ids=ints(rows),
            positions=ints(rows),
            slots=torch.full_like(ints(rows), -1),
            lengths=ints(decodes),
            tables=ints(decodes, blocks),
            chunk_lengths=ints(chunks),
            chunk_tables=ints(chunks, blocks),
            cu_seqlens=ints(chunks + 1),
            kept=torch.zeros(decodes, dtype=torch.int64, device=device),
        )

    def layout(self, size: int) -> Ragged:
        """Return the layout of the first ``size`` rows. Any of them may be a chunk's; those that
        are not follow the decode rows, whose attention clears them first."""
        decodes = self.decodes(size)
        return Ragged(
            self.slots[:size],
            self.lengths[:decodes],
            self.tables[:decodes],
            self.chunk_lengths,
            self.chunk_tables,
            self.cu_seqlens,
            longest=size,
        )

    def decodes(self, size: int) -> int:
        """Return how many of ``size`` rows may be decode rows, or kept ones."""
        return min(size, self.lengths.shape[0])


@triton.jit
def _copy(source, target, places, count, end, padding):
    """Copy ``count`` elements and fill up to ``end``."""
    values = tl.load(source + places, mask=places < count, other=padding)
    tl.store(target + places, values, mask=places < end)


@triton.jit
def _copy_table(source, target, columns, COLUMNS: tl.constexpr):
    for first in range(0, columns, COLUMNS):
        places = first + tl.arange(0, COLUMNS)
        blocks = tl.load(source + places, mask=places < columns, other=0)
        tl.store(target + places, blocks, mask=places < columns)


@triton.jit(
    do_not_specialize=[
        "count",
        "decodes",
        "chunks",
        "states",
        "columns",
        "chunk_columns",
        "size",
        "most_decodes",
        "most_chunks",
    ]
)
def _place_batch(
    token_ids,
    positions,
    slots,
    lengths,
    tables,
    chunk_lengths,
    chunk_tables,
    cu_seqlens,
    kept,
    to_token_ids,
    to_positions,
    to_slots,
    to_lengths,
    to_tables,
    to_chunk_lengths,
    to_chunk_tables,
    to_cu_seqlens,
    to_kept,
    table_stride,
    chunk_table_stride,
    to_table_stride,
    count,
    decodes,
    chunks,
    states,
    columns,
    chunk_columns,
    size,
    most_decodes,
    most_chunks,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Each program copies some elements of all arrays and one block table."""
    program = tl.program_id(0)
    places = program * BLOCK + tl.arange(0, BLOCK)
    _copy(token_ids, to_token_ids, places, count, size, 0)
    _copy(positions, to_positions, places, count, size, 0)
    _copy(slots, to_slots, places, count, size, -1)
    _copy(lengths, to_lengths, places, decodes, most_decodes, 0)
    _copy(kept, to_kept, places, states, most_decodes, 0)
    _copy(chunk_lengths, to_chunk_lengths, places, chunks, most_chunks, 0)
    _copy(cu_seqlens, to_cu_seqlens, places, chunks + 1, most_chunks + 1, count)
    if program < decodes:
        row = tl.cast(program, tl.int64)
        _copy_table(
            tables + row * table_stride, to_tables + row * to_table_stride, columns, COLUMNS
        )
    elif program < decodes + chunks:
        row = tl.cast(program - decodes, tl.int64)
        _copy_table(
            chunk_tables + row * chunk_table_stride,
            to_chunk_tables + row * to_table_stride,
            chunk_columns,
            COLUMNS,
        )


def place_batch(
    token_ids: Tensor,
    positions: Tensor,
    layout: Ragged,
    kept: Tensor,
    static: StaticBatch,
    size: int,
) -> None:
    """Copy a batch into the first ``size`` rows of ``static``. It must fit: ``token_ids`` and
    ``positions`` int32 [at most ``size``], ``kept`` int64 [at most ``static.decodes(size)``], no
    more decode rows than that, no more chunks than ``static`` has."""
    decodes, chunks = layout.decode_lengths.shape[0], layout.chunk_lengths.shape[0]
    most_decodes, most_chunks = static.decodes(size), static.chunk_lengths.shape[0]
    blocks = static.tables.shape[1]
    programs = max(decodes + chunks, triton.cdiv(max(size, most_chunks + 1), _BLOCK))
    _place_batch[(programs,)](
        token_ids,
        positions,
        layout.slots,
        layout.decode_lengths,
        layout.decode_blocks,
        layout.chunk_lengths,
        layout.chunk_blocks,
        layout.cu_seqlens,
        kept,
        static.token_ids,
        static.positions,
        static.slots,
        static.lengths,
        static.tables,
        static.chunk_lengths,
        static.chunk_tables,
        static.cu_seqlens,
        static.kept,
        layout.decode_blocks.stride(0),
        layout.chunk_blocks.stride(0),
        static.tables.stride(0),
        token_ids.shape[0],
        decodes,
        chunks,
        kept.shape[0],
        min(layout.decode_blocks.shape[1], blocks),
        min(layout.chunk_blocks.shape[1], blocks),
        size,
        most_decodes,
        most_chunks,
        BLOCK=_BLOCK,
        COLUMNS=_COLUMNS,
        num_warps=2,
    )
