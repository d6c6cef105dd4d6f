"""The attention kernels in use: one table, so that others can replace them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from engine.attention.layout import Ragged
from engine.gpu.kernels.decode_attention import decode_attention
from engine.gpu.kernels.launch import UNIFORM, padded
from engine.gpu.kernels.ragged_attention import ragged_attention


class DecodeAttention(Protocol):
    """See ``engine.gpu.kernels.decode_attention.decode_attention``."""

    def __call__(
        self,
        query: Tensor,
        blocks: Tensor,
        tables: Tensor,
        lengths: Tensor,
        *,
        scale: float,
        window: int | None,
        scales: Tensor | None,
        out: Tensor,
    ) -> Tensor: ...


class RaggedAttention(Protocol):
    """See ``engine.gpu.kernels.ragged_attention.ragged_attention``."""

    def __call__(
        self,
        query: Tensor,
        blocks: Tensor,
        tables: Tensor,
        lengths: Tensor,
        cu_seqlens: Tensor,
        longest: int,
        *,
        scale: float,
        window: int | None,
        scales: Tensor | None,
        out: Tensor,
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class AttentionKernels:
    """``decode`` handles sequences with one row in the batch, ``ragged`` those with more. Each
    writes only its own rows of ``out``."""

    decode: DecodeAttention
    ragged: RaggedAttention

    def attend(
        self,
        query: Tensor,
        blocks: Tensor,
        tables: Ragged,
        *,
        scale: float,
        window: int | None,
        scales: Tensor | None,
    ) -> Tensor:
        """Attend for a whole batch: ``query`` [rows, heads, head_dim]. Returns
        [rows, heads * head_dim]."""
        out = query.new_empty(query.shape[0], query.shape[1] * query.shape[2])
        decodes = tables.decode_lengths.shape[0]
        if decodes:
            self.decode(
                query[:decodes],
                blocks,
                tables.decode_blocks,
                tables.decode_lengths,
                scale=scale,
                window=window,
                scales=scales,
                out=out[:decodes],
            )
        if tables.longest:
            self.ragged(
                query,
                blocks,
                tables.chunk_blocks,
                tables.chunk_lengths,
                tables.cu_seqlens,
                tables.longest,
                scale=scale,
                window=window,
                scales=scales,
                out=out,
            )
        return out


class _Options(TypedDict):
    scale: float
    window: int | None
    scales: Tensor | None
    out: Tensor


def _one_row_each(
    query: Tensor, blocks: Tensor, tables: Tensor, lengths: Tensor, **options: Unpack[_Options]
) -> Tensor:
    rows = torch.arange(query.shape[0] + 1, dtype=torch.int32, device=query.device)
    return _by_itself(query, blocks, tables, lengths, rows, 1, **options)


def _by_itself(
    query: Tensor,
    blocks: Tensor,
    tables: Tensor,
    lengths: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    **options: Unpack[_Options],
) -> Tensor:
    ragged = (query, blocks, tables, lengths, cu_seqlens, longest)
    tiles = UNIFORM[padded(query.shape[2]), query.dtype.itemsize]
    return ragged_attention(*ragged, tiles=tiles, uniform=True, **options)


TRITON = AttentionKernels(decode_attention, ragged_attention)
# One kernel for all rows, and no sum is split: a token's result does not depend on the batch.
DETERMINISTIC = AttentionKernels(_one_row_each, _by_itself)
