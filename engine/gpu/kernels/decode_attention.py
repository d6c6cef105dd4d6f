"""Decode attention, one row per sequence, over the paged KV cache.

A sequence's keys are split among several programs, the last of which merges their results by
log-sum-exp (Flash-Decoding; the merge is that of arXiv 2501.01005, section 2.2). The query heads
that share a key head are the rows of one tile (grouped-query attention, arXiv 2305.13245), so each
key is read once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import (
    DecodeTiles,
    attention_constants,
    decode_tiles,
    merge_counters,
    num_sms,
    num_splits,
    padded,
    row_stride,
)
from engine.gpu.kernels.tiles import LOG2E, attend_tiles


@triton.jit
def _merge_head(
    partial,
    partial_lse,
    sinks,
    out,
    slot,
    head,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Merge the splits of one row and head, weighted by their sums of exponentials. ``slot``: of
    the first split; ``out``: the head's place."""
    CHUNK: tl.constexpr = 16 if SPLITS > 16 else SPLITS
    splits = tl.arange(0, SPLITS)
    members = tl.arange(0, CHUNK)
    dims = tl.arange(0, DIM)
    # Other programs have just written these: past the L1 cache.
    lse = tl.load(partial_lse + slot + splits, cache_modifier=".cg")
    top = tl.max(lse, 0)
    if HAS_SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2E
        top = tl.maximum(top, sink)
    top = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(tl.exp2(lse - top), 0)
    if HAS_SINKS:
        mass = mass + tl.exp2(sink - top)
    total = tl.zeros([DIM], tl.float32)
    for first in range(0, SPLITS, CHUNK):  # a tile of all of them would not fit the registers
        slots = slot + first + members
        some = tl.load(partial_lse + slots, cache_modifier=".cg")
        # An empty split holds zeros, but need not be read: its weight is zero.
        loads = (some > float("-inf"))[:, None] & (dims < HEAD_DIM)[None, :]
        places = partial + slots[:, None] * HEAD_DIM + dims[None, :]
        parts = tl.load(places, mask=loads, other=0.0, cache_modifier=".cg")
        total += tl.sum(parts * tl.exp2(some - top)[:, None], 0)
    result = total / tl.where(mass > 0, mass, 1.0)
    tl.store(out + dims, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)


@triton.jit
def _attend_split(
    query,
    cache,
    tables,
    lengths,
    scales,
    sinks,
    out,
    partial,
    partial_lse,
    finished,
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
    """Compute one split of one sequence and key head. With ``SPLITS`` above 1, the last program of
    them merges them: ``partial`` [rows, heads, SPLITS, HEAD_DIM] and ``partial_lse``
    [rows, heads, SPLITS] are float32; ``finished`` [rows, KV_HEADS] counts them, and is 0 again at
    the end."""
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
        places = out + row * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        tl.store(places, result.to(out.dtype.element_ty), mask=is_real)
    else:
        result = total / tl.where(mass > 0, mass, 1.0)[:, None]
        lse = tl.where(mass > 0, peak + tl.log2(tl.where(mass > 0, mass, 1.0)), float("-inf"))
        slot = (row * (KV_HEADS * GROUP) + heads) * SPLITS + split
        tl.store(partial + slot[:, None] * HEAD_DIM + dims[None, :], result, mask=is_real)
        tl.store(partial_lse + slot, lse, mask=members < GROUP)
        tl.debug_barrier()  # all threads have written before one of them counts
        counter = finished + row * KV_HEADS + kv_head
        if tl.atomic_add(counter, 1, sem="acq_rel") == SPLITS - 1:
            for member in range(GROUP):
                head = kv_head * GROUP + member
                _merge_head(
                    partial,
                    partial_lse,
                    sinks,
                    out + row * out_stride + head * HEAD_DIM,
                    (row * (KV_HEADS * GROUP) + head) * SPLITS,
                    head,
                    HEAD_DIM=HEAD_DIM,
                    DIM=DIM,
                    SPLITS=SPLITS,
                    HAS_SINKS=HAS_SINKS,
                )
            tl.store(counter, 0)


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
        out,
        partial,
        lse,
        merge_counters(query.device, rows * kv_heads),
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
    return out


def _new_partial(query: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Allocate each split's result and log-sum-exp."""
    rows, heads, head_dim = query.shape
    shape = (rows, heads, splits)
    return (
        torch.empty(*shape, head_dim, dtype=torch.float32, device=query.device),
        torch.empty(shape, dtype=torch.float32, device=query.device),
    )
