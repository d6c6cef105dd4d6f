"""The attention kernels in use: one table, so that others can replace them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from engine.attention.layout import Ragged
from engine.gpu.fresh import FreshAttention
from engine.gpu.kernels.decode_attention import count_tiles, decode_attention
from engine.gpu.kernels.launch import uniform_tiles
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.ragged_parts import RaggedParts, plan_parts
from engine.gpu.planned import PlannedAttention, PlannedRun


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
        counts: Tensor | None,
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
        parts: RaggedParts | None,
        out: Tensor,
    ) -> Tensor: ...


class AttentionPlan(NamedTuple):
    """How the rows of a step are divided, the same in every layer with the same window.
    ``tables``: the rows that read their keys from the cache; ``fresh``: [first row, end) of chunks
    whose keys are all in the batch; ``counts``: see ``decode_attention``; ``parts``: see
    ``ragged_attention``; ``run``: attends for all chunks, in place of the kernels."""

    tables: Ragged
    fresh: tuple[tuple[int, int], ...] = ()
    counts: Tensor | None = None
    parts: RaggedParts | None = None
    run: PlannedRun | None = None


@dataclass(frozen=True, slots=True)
class AttentionKernels:
    """``decode`` handles sequences with one row in the batch, ``ragged`` those with more, ``fresh``
    those of them that begin here and that it fits; ``planned`` takes over all chunks of the steps
    that it fits. Each writes only its own rows of ``out``."""

    decode: DecodeAttention
    ragged: RaggedAttention
    fresh: FreshAttention | None = None
    divides: bool = True  # ``decode`` and ``ragged`` read ``AttentionPlan.counts`` and ``parts``
    planned: PlannedAttention | None = None

    @property
    def fewest_unrecorded(self) -> int | None:
        """From so many rows of prompts on, a step's attention may depend on what only the host
        knows, so it cannot be recorded; None: it never does."""
        of_both = [each.fewest for each in (self.fresh, self.planned) if each is not None]
        return min(of_both, default=None)

    def plan(
        self,
        tables: Ragged,
        *,
        window: int | None,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
    ) -> AttentionPlan:
        """Called once for a step, before its layers. Reads nothing from the device."""
        plan = self._without_fresh(tables, window)
        if self.planned is not None and self.planned.fits(tables):
            plan = plan._replace(run=self.planned.plan(tables, window))
        if self.divides and tables.decode_lengths.shape[0]:
            lengths = tables.decode_lengths
            counts = count_tiles(lengths, head_dim=head_dim, dtype=dtype, window=window)
            plan = plan._replace(counts=counts)
        if self.divides and plan.run is None and plan.tables.longest:
            parts = plan_parts(
                *(plan.tables.chunk_lengths, plan.tables.cu_seqlens, plan.tables.longest),
                rows=tables.slots.shape[0],
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                dtype=dtype,
                window=window,
            )
            plan = plan._replace(parts=parts)
        return plan

    def _without_fresh(self, tables: Ragged, window: int | None) -> AttentionPlan:
        if self.fresh is None:
            return AttentionPlan(tables)
        left = len(tables.sizes)
        while left > len(tables.sizes) - tables.num_fresh and self.fresh.fits(
            tables.sizes[left - 1], window
        ):
            left -= 1
        if left == len(tables.sizes):
            return AttentionPlan(tables)
        sizes = tables.sizes[:left]
        end = tables.decode_lengths.shape[0] + sum(sizes)
        ranges = []
        for size in tables.sizes[left:]:
            ranges.append((end, end + size))
            end += size
        rest = replace(
            tables,
            chunk_lengths=tables.chunk_lengths[:left],
            chunk_blocks=tables.chunk_blocks[:left],
            cu_seqlens=tables.cu_seqlens[: left + 1],
            longest=max(sizes, default=0),
            sizes=sizes,
        )
        return AttentionPlan(rest, tuple(ranges))

    def attend(
        self,
        qkv: Tensor,
        blocks: Tensor,
        plan: AttentionPlan,
        *,
        num_heads: int,
        scale: float,
        window: int | None,
        scales: Tensor | None,
    ) -> Tensor:
        """Attend for a whole batch: ``qkv`` [rows, heads + 2 * kv_heads, head_dim], of which keys
        and values are read for ``plan.fresh`` only. Returns [rows, heads * head_dim]."""
        query, tables = qkv[:, :num_heads], plan.tables
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
                counts=plan.counts,
                out=out[:decodes],
            )
        if plan.run is not None:
            plan.run(query[decodes:], blocks, scale, out[decodes:])
        elif tables.longest:
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
                parts=plan.parts,
                out=out,
            )
        for first, end in plan.fresh:
            assert self.fresh is not None
            key, value = qkv[first:end, num_heads:].chunk(2, dim=1)
            self.fresh(query[first:end], key, value, scale=scale, out=out[first:end])
        return out


class _Options(TypedDict):
    scale: float
    window: int | None
    scales: Tensor | None
    out: Tensor


def _one_row_each(
    query: Tensor,
    blocks: Tensor,
    tables: Tensor,
    lengths: Tensor,
    *,
    counts: Tensor | None,
    **options: Unpack[_Options],
) -> Tensor:
    rows = torch.arange(query.shape[0] + 1, dtype=torch.int32, device=query.device)
    return _by_itself(query, blocks, tables, lengths, rows, 1, parts=None, **options)


def _by_itself(
    query: Tensor,
    blocks: Tensor,
    tables: Tensor,
    lengths: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    *,
    parts: RaggedParts | None,
    **options: Unpack[_Options],
) -> Tensor:
    ragged = (query, blocks, tables, lengths, cu_seqlens, longest)
    tiles = uniform_tiles(query.shape[2], query.dtype, query.device)
    return ragged_attention(*ragged, tiles=tiles, uniform=True, **options)


TRITON = AttentionKernels(decode_attention, ragged_attention)
# One kernel for all rows, and no sum is split: a token's result does not depend on the batch.
DETERMINISTIC = AttentionKernels(_one_row_each, _by_itself, divides=False)


def with_others(cudnn: bool, planned: PlannedAttention | None) -> AttentionKernels:
    """Return our kernels, with what takes over prompts."""
    return replace(TRITON, fresh=FreshAttention() if cudnn else None, planned=planned)
