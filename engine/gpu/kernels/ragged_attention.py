"""Attention for any number of sequences over the paged KV cache: any mix of prompts, parts of
prompts and single tokens.

A tile holds consecutive tokens of one sequence, times the query heads of one key head. Keys that
are visible to every row of a tile are read without masks; only the diagonal and a window's edge
need them. Where there are few tiles, several programs share the keys of one (see ``ragged_parts``),
and a second kernel merges their results by log-sum-exp (arXiv 2501.01005, section 2.2).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs, start_next
from engine.gpu.kernels.launch import (
    RaggedTiles,
    attention_constants,
    early_launch,
    ragged_tiles,
    row_stride,
)
from engine.gpu.kernels.ragged_parts import FIELDS, RaggedParts, plan_parts, tile_rows
from engine.gpu.kernels.tiles import LOG2E, attend_tiles

# A merging program reads so many rows of so many parts at once.
_MERGED_ROWS = 8
_MERGED_PARTS = 16
_MERGING_WARPS = 8


@triton.jit(do_not_specialize=["slots"])
def _attend_ragged(
    query,
    cache,
    tables,
    lengths,
    cu_seqlens,
    scales,
    sinks,
    out,
    parts_table,
    partial,
    partial_lse,
    query_stride,
    block_stride,
    table_stride,
    out_stride,
    scale,
    soft_cap,
    slots,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    DTYPE: tl.constexpr,
    UNIFORM: tl.constexpr,
    FIELDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute one tile of one sequence and key head, or a part of its keys, which goes to
    ``partial`` float32 [KV_HEADS, slots, ROWS, HEAD_DIM] and ``partial_lse`` [KV_HEADS, slots,
    ROWS]. The last tiles have the most keys, so they start first. With ``UNIFORM``, there are no
    parts, and all keys go through the masked loop: the compiler may round the two loops
    differently, and which keys each gets depends on the tile's other rows."""
    TOKENS: tl.constexpr = ROWS // GROUP
    start_next(EARLY)
    kv_head = tl.program_id(0)
    item = parts_table
    if UNIFORM:
        sequence = tl.program_id(1)
        first_row = tl.load(cu_seqlens + sequence)
        count = tl.load(cu_seqlens + sequence + 1) - first_row
        length = tl.load(lengths + sequence)
        skipped = (tl.num_programs(2) - 1 - tl.program_id(2)) * TOKENS
        is_used = skipped < count
    else:
        item = parts_table + tl.program_id(1) * FIELDS
        sequence = tl.load(item)
        skipped = tl.load(item + 1)
        part = tl.load(item + 2)
        parts = tl.load(item + 3)
        first_row = tl.load(item + 5)
        count = tl.load(item + 6)
        length = tl.load(item + 7)
        is_used = parts > 0
    if not is_used:
        return
    members = tl.arange(0, ROWS)
    tokens = skipped + members // GROUP
    heads = kv_head * GROUP + members % GROUP
    dims = tl.arange(0, DIM)
    is_row = (members // GROUP < TOKENS) & (tokens < count)
    is_real = is_row[:, None] & (dims < HEAD_DIM)[None, :]
    rows = (first_row + tokens).to(tl.int64)
    places = rows[:, None] * query_stride + heads[:, None] * HEAD_DIM + dims[None, :]
    q = tl.load(query + places, mask=is_real, other=0.0).to(DTYPE)
    if HAS_SCALES:
        scale = scale * tl.load(scales + kv_head)

    # Positions of the tile's first and last token, and the tiles of keys visible to all its rows.
    first = length - count + skipped
    last = tl.minimum(first + TOKENS, length) - 1
    first_tile = tl.maximum(first - WINDOW + 1, 0) // KEYS if WINDOW > 0 else 0
    end_tile = tl.cdiv(last + 1, KEYS)
    first_full = tl.cdiv(tl.maximum(last - WINDOW + 1, 0), KEYS) if WINDOW > 0 else 0
    first_full = tl.minimum(first_full, end_tile)
    end_full = tl.maximum((first + 1) // KEYS, first_full)
    begin_part = first_tile
    end_part = end_tile
    if UNIFORM:
        end_full = first_tile
    else:
        # Outside the part, loops over keys are empty.
        begin_part = first_tile + (end_tile - first_tile) * part // parts
        end_part = first_tile + (end_tile - first_tile) * (part + 1) // parts

    total = tl.zeros([ROWS, DIM], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    positions = length - count + tokens
    table = tables + sequence.to(tl.int64) * table_stride
    head_offset = kv_head * (BLOCK_SIZE * HEAD_DIM)
    # In order: the window's edge, what all rows see, the diagonal.
    for span in tl.static_range(3):
        if span == 2 or (not UNIFORM and (span == 1 or WINDOW > 0)):
            begin = first_tile if span == 0 else (first_full if span == 1 else end_full)
            end = first_full if span == 0 else (end_full if span == 1 else end_tile)
            total, peak, mass = attend_tiles(
                q,
                total,
                peak,
                mass,
                cache,
                table,
                head_offset,
                block_stride,
                positions,
                tl.maximum(begin, begin_part),
                tl.minimum(end, end_part),
                last + 1,
                scale,
                soft_cap,
                HEAD_DIM=HEAD_DIM,
                DIM=DIM,
                BLOCK_SIZE=BLOCK_SIZE,
                KEYS=KEYS,
                VALUES_OFFSET=KV_HEADS * BLOCK_SIZE * HEAD_DIM,
                WINDOW=WINDOW,
                HAS_CAP=HAS_CAP,
                MASKED=span != 1,
                DTYPE=DTYPE,
            )
    if HAS_SCALES:
        total = total * tl.load(scales + KV_HEADS + kv_head)
    if UNIFORM or parts == 1:
        if HAS_SINKS:
            sink = tl.load(sinks + heads).to(tl.float32) * LOG2E
            top = tl.maximum(peak, sink)
            total = total * tl.exp2(peak - top)[:, None]
            mass = mass * tl.exp2(peak - top) + tl.exp2(sink - top)
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        places = rows[:, None] * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        tl.store(out + places, result.to(out.dtype.element_ty), mask=is_real)
    else:
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        lse = tl.where(mass > 0, peak + tl.log2(tl.where(mass > 0, mass, 1.0)), float("-inf"))
        slot = (kv_head * slots + tl.load(item + 4)).to(tl.int64)
        targets = slot * ROWS + members
        tl.store(partial + targets[:, None] * HEAD_DIM + dims[None, :], result, mask=is_real)
        tl.store(partial_lse + targets, lse, mask=is_row)


@triton.jit(do_not_specialize=["slots"])
def _merge_parts(
    parts_table,
    partial,
    partial_lse,
    sinks,
    out,
    out_stride,
    slots,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    FIELDS: tl.constexpr,
    MERGED: tl.constexpr,
    CHUNK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Merge some rows of a tile that was computed in parts: a tile's rows are divided, ``MERGED``
    at a time, among as many programs as had its keys. ``CHUNK`` parts are read at once."""
    await_inputs(EARLY)
    item = parts_table + tl.program_id(1) * FIELDS
    parts = tl.load(item + 3)
    if parts <= 1:
        return
    kv_head = tl.program_id(0)
    skipped = tl.load(item + 1)
    part = tl.load(item + 2)
    slot = tl.load(item + 4) - part
    first_row = tl.load(item + 5)
    left = tl.load(item + 6) - skipped
    dims = tl.arange(0, DIM)
    for first in range(
        part * MERGED, tl.minimum(left * GROUP, ROWS // GROUP * GROUP), parts * MERGED
    ):
        members = first + tl.arange(0, MERGED)
        is_row = (members < left * GROUP) & (members < ROWS // GROUP * GROUP)
        heads = kv_head * GROUP + members % GROUP
        total = tl.zeros([MERGED, DIM], tl.float32)
        top = tl.full([MERGED], float("-inf"), tl.float32)
        mass = tl.zeros([MERGED], tl.float32)
        if HAS_SINKS:
            top = tl.load(sinks + heads).to(tl.float32) * LOG2E
            mass = mass + 1.0
        for done in range(0, parts, CHUNK):
            # Of the chunk's first part; those of one tile lie one after another.
            place = (kv_head * slots + slot + done).to(tl.int64) * ROWS + members
            # First all are loaded, so that the loads are under way at once.
            held = ()
            higher = top
            for number in tl.static_range(CHUNK):
                loads = is_row & (done + number < parts)
                sources = place + number * ROWS
                lse = tl.load(partial_lse + sources, mask=loads, other=float("-inf"))
                values = tl.load(
                    partial + sources[:, None] * HEAD_DIM + dims[None, :],
                    mask=loads[:, None] & (dims < HEAD_DIM)[None, :],
                    other=0.0,
                )
                held = held + ((lse, values),)  # type: ignore[assignment]  # noqa: RUF005
                higher = tl.maximum(higher, lse)
            level = tl.where(higher == float("-inf"), 0.0, higher)
            fades = tl.exp2(top - level)
            total = total * fades[:, None]
            mass = mass * fades
            for number in tl.static_range(CHUNK):
                weights = tl.exp2(held[number][0] - level)
                total = total + held[number][1] * weights[:, None]
                mass = mass + weights
            top = higher
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        rows = (first_row + skipped + members // GROUP).to(tl.int64)
        places = rows[:, None] * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        is_real = is_row[:, None] & (dims < HEAD_DIM)[None, :]
        tl.store(out + places, result.to(out.dtype.element_ty), mask=is_real)


def ragged_attention(
    query: Tensor,
    blocks: Tensor,
    tables: Tensor,
    lengths: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    scales: Tensor | None = None,
    parts: RaggedParts | None = None,
    out: Tensor | None = None,
    tiles: RaggedTiles | None = None,
    uniform: bool = False,
) -> Tensor:
    """Attend from each token to its sequence up to itself. Returns [tokens, heads * head_dim].

    ``query`` [tokens, heads, head_dim]; ``cu_seqlens`` int32 [sequences + 1]: sequence i has rows
    [cu_seqlens[i], cu_seqlens[i + 1]), the last tokens of its context of ``lengths[i]`` (int32
    [sequences]); ``longest``: the most rows of any sequence. ``parts``: of ``plan_parts`` for these
    sequences, this window and these ``tiles``, if it is known. For the other arguments see
    ``decode_attention``. Rows of ``out`` that belong to no sequence are not written. ``uniform``:
    with the same ``tiles``, a token's result is the same to the bit whatever the other rows are.
    """
    tokens, heads, head_dim = query.shape
    kv_heads = blocks.shape[2]
    tiles = tiles or ragged_tiles(head_dim, query.dtype)
    rows = tile_rows(tiles, heads // kv_heads)
    out = query.new_empty(tokens, heads * head_dim) if out is None else out
    if uniform:
        parts, partial, partial_lse = None, None, None
        each = triton.cdiv(longest, rows // (heads // kv_heads))
        grid: tuple[int, ...] = (kv_heads, cu_seqlens.shape[0] - 1, each)
    else:
        parts = parts or _planned(query, kv_heads, lengths, cu_seqlens, longest, window, tiles)
        partial, partial_lse = _new_partial(query, kv_heads * parts.slots, rows)
        grid = (kv_heads, parts.table.shape[0])
    constants = attention_constants(
        query, blocks, window=window, soft_cap=soft_cap, sinks=sinks, scales=scales
    )
    _attend_ragged[grid](
        *(query, blocks, tables, lengths, cu_seqlens, scales, sinks, out),
        *(parts and parts.table, partial, partial_lse),
        *(query.stride(0), blocks.stride(0), tables.stride(0), row_stride(out)),
        *(scale, soft_cap or 1.0, parts.slots if parts else 0),
        ROWS=rows,
        KEYS=tiles.keys,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        maxnreg=tiles.registers,
        **{"UNIFORM": uniform, "FIELDS": FIELDS},
        EARLY=not uniform and early_launch()["EARLY"],
        **constants,
    )
    if parts is not None:
        _merge(parts, partial, partial_lse, sinks, out, constants | {"ROWS": rows})
    return out


def _merge(
    parts: RaggedParts,
    partial: Tensor | None,
    partial_lse: Tensor | None,
    sinks: Tensor | None,
    out: Tensor,
    constants: dict[str, Any],
) -> None:
    shared = ("GROUP", "ROWS", "HEAD_DIM", "DIM", "HAS_SINKS")
    grid = (constants["KV_HEADS"], parts.table.shape[0])
    _merge_parts[grid](
        *(parts.table, partial, partial_lse, sinks, out, row_stride(out), parts.slots),
        FIELDS=FIELDS,
        MERGED=_MERGED_ROWS,
        CHUNK=_MERGED_PARTS,
        num_warps=_MERGING_WARPS,
        **early_launch(),
        **{name: constants[name] for name in shared},
    )


def _planned(
    query: Tensor,
    kv_heads: int,
    lengths: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    window: int | None,
    tiles: RaggedTiles,
) -> RaggedParts:
    rows, heads, head_dim = query.shape
    return plan_parts(
        lengths,
        cu_seqlens,
        longest,
        rows=rows,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=query.dtype,
        window=window,
        tiles=tiles,
    )


def _new_partial(query: Tensor, slots: int, rows: int) -> tuple[Tensor, Tensor]:
    """Allocate each part's result and log-sum-exp."""
    shape = (slots, rows)
    return (
        torch.empty(*shape, query.shape[2], dtype=torch.float32, device=query.device),
        torch.empty(shape, dtype=torch.float32, device=query.device),
    )
