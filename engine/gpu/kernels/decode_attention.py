"""Decode attention, one row per sequence, over the paged KV cache.

A sequence's keys are split among several programs whose results are merged by log-sum-exp
(Flash-Decoding; the merge is that of arXiv 2501.01005, section 2.2). The query heads that share a
key head are the rows of one tile (grouped-query attention, arXiv 2305.13245), so each key is read
once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import (
    DecodeTiles,
    attention_constants,
    decode_tiles,
    num_sms,
    num_splits,
    padded,
    row_stride,
)
from engine.gpu.kernels.tiles import LOG2E, attend_tiles


@triton.jit
def _attend_split(
    query,
    cache,
    tables,
    lengths,
    scales,
    sinks,
    partial,
    partial_lse,
    query_stride,
    block_stride,
    table_stride,
    out_stride,
    scale,
    soft_cap,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Compute one split of one sequence and key head. With ``SPLITS`` 1, ``partial`` is the result
    itself; otherwise it is [rows, heads, SPLITS, HEAD_DIM] float32 with ``partial_lse``
    [rows, heads, SPLITS]."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + row)
    first_key = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0
    first_tile = first_key // KEYS
    end_tile = tl.cdiv(length, KEYS)
    share = tl.cdiv(end_tile - first_tile, SPLITS)
    first_tile = first_tile + split * share
    end_tile = tl.minimum(first_tile + share, end_tile)

    members = tl.arange(0, ROWS)
    heads = kv_head * GROUP + members
    dims = tl.arange(0, DIM)
    is_real = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    places = row * query_stride + heads[:, None] * HEAD_DIM + dims[None, :]
    q = tl.load(query + places, mask=is_real, other=0.0).to(DTYPE)
    if HAS_SCALES:
        scale = scale * tl.load(scales + kv_head)

    total, peak, mass = attend_tiles(
        q,
        tl.zeros([ROWS, DIM], tl.float32),
        tl.full([ROWS], float("-inf"), tl.float32),
        tl.zeros([ROWS], tl.float32),
        cache,
        tables + row * table_stride,
        kv_head * (BLOCK_SIZE * HEAD_DIM),
        block_stride,
        tl.zeros([ROWS], tl.int32) + (length - 1),
        first_tile,
        end_tile,
        length,
        scale,
        soft_cap,
        HEAD_DIM=HEAD_DIM,
        DIM=DIM,
        BLOCK_SIZE=BLOCK_SIZE,
        KEYS=KEYS,
        VALUES_OFFSET=KV_HEADS * BLOCK_SIZE * HEAD_DIM,
        WINDOW=WINDOW,
        HAS_CAP=HAS_CAP,
        MASKED=True,
        DTYPE=DTYPE,
    )
    if HAS_SCALES:
        total = total * tl.load(scales + KV_HEADS + kv_head)
    if SPLITS == 1:
        if HAS_SINKS:
            sink = tl.load(sinks + heads, mask=members < GROUP, other=0.0).to(tl.float32) * LOG2E
            top = tl.maximum(peak, sink)
            total = total * tl.exp2(peak - top)[:, None]
            mass = mass * tl.exp2(peak - top) + tl.exp2(sink - top)
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        out = partial + row * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        tl.store(out, result.to(partial.dtype.element_ty), mask=is_real)
    else:
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        lse = tl.where(mass > 0, peak + tl.log2(tl.where(mass > 0, mass, 1.0)), float("-inf"))
        slot = (row * (KV_HEADS * GROUP) + heads) * SPLITS + split
        tl.store(partial + slot[:, None] * HEAD_DIM + dims[None, :], result, mask=is_real)
        tl.store(partial_lse + slot, lse, mask=members < GROUP)


@triton.jit
def _merge_splits(
    partial,
    partial_lse,
    sinks,
    out,
    out_stride,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Merge the splits of one row and head, weighted by their sums of exponentials."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    slots = (row * HEADS + head) * SPLITS + splits
    lse = tl.load(partial_lse + slots)
    top = tl.max(lse, 0)
    if HAS_SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2E
        top = tl.maximum(top, sink)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(lse - top)
    mass = tl.sum(weights, 0)
    if HAS_SINKS:
        mass = mass + tl.exp2(sink - top)
    # An empty split holds zeros, but need not be read: its weight is zero.
    loads = (lse > float("-inf"))[:, None] & (dims < HEAD_DIM)[None, :]
    parts = tl.load(partial + slots[:, None] * HEAD_DIM + dims[None, :], mask=loads, other=0.0)
    result = tl.sum(parts * weights[:, None], 0) / tl.where(mass > 0, mass, 1.0)
    place = out + row * out_stride + head * HEAD_DIM + dims
    tl.store(place, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)


def decode_attention(
    query: Tensor,
    blocks: Tensor,
    tables: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    scales: Tensor | None = None,
    out: Tensor | None = None,
    tiles: DecodeTiles | None = None,
    splits: int | None = None,
) -> Tensor:
    """Attend from each row to its whole context: [rows, heads * head_dim] in ``query``'s dtype.

    ``query`` [rows, heads, head_dim], of any stride between rows; ``blocks`` [blocks, 2, kv_heads,
    block_size, head_dim]: one layer of the cache, which must already hold this step's keys;
    ``tables`` int32 [rows or more, blocks]; ``lengths`` int32 [rows or more]: tokens of each
    context, including the row's own; 0: the row is padding and its result 0. ``window``: how many
    of the last tokens are visible; ``soft_cap``: scores become cap * tanh(score / cap); ``sinks``
    [heads]: scores of an extra key without a value; ``scales`` float32 [2, kv_heads]: the factors
    of stored keys and values. ``tiles`` and ``splits`` override the table's.
    """
    rows, heads, head_dim = query.shape
    kv_heads = blocks.shape[2]
    tiles = tiles or decode_tiles(head_dim, query.dtype)
    if splits is None:
        splits = num_splits(rows, kv_heads, num_sms(query.device), tiles.programs_per_sm)
    out = query.new_empty(rows, heads * head_dim) if out is None else out
    partial, lse = _new_partial(query, splits) if splits > 1 else (out, out)
    _attend_split[(rows, kv_heads, splits)](
        query,
        blocks,
        tables,
        lengths,
        scales,
        sinks,
        partial,
        lse,
        query.stride(0),
        blocks.stride(0),
        tables.stride(0),
        row_stride(out),
        scale,
        soft_cap or 1.0,
        ROWS=padded(heads // kv_heads),
        KEYS=tiles.keys,
        SPLITS=splits,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        maxnreg=tiles.registers,
        **attention_constants(
            query, blocks, window=window, soft_cap=soft_cap, sinks=sinks, scales=scales
        ),
    )
    if splits > 1:
        _merge(partial, lse, sinks, out)
    return out


def _new_partial(query: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Allocate each split's result and log-sum-exp."""
    rows, heads, head_dim = query.shape
    shape = (rows, heads, splits)
    return (
        torch.empty(*shape, head_dim, dtype=torch.float32, device=query.device),
        torch.empty(shape, dtype=torch.float32, device=query.device),
    )


def _merge(partial: Tensor, lse: Tensor, sinks: Tensor | None, out: Tensor) -> None:
    rows, heads, splits, head_dim = partial.shape
    dim = padded(head_dim)
    _merge_splits[(rows, heads)](
        partial,
        lse,
        sinks,
        out,
        row_stride(out),
        HEADS=heads,
        HEAD_DIM=head_dim,
        DIM=dim,
        SPLITS=splits,
        HAS_SINKS=sinks is not None,
        num_warps=max(2, splits * dim // 2048),  # at most 64 elements of a tile in a thread
    )
