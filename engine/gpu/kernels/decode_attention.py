"""Decode attention, one row per sequence, over the paged KV cache.

All programs get equal shares of the work, however unequal the contexts are: the tiles of keys of
all rows and key heads are counted in one order, and each program computes a range of them
(Stream-K, arXiv 2301.03598). A context that falls into several ranges is merged by log-sum-exp by
the last program that has a part of it (Flash-Decoding; the merge is that of arXiv 2501.01005,
section 2.2). Where ranges lie follows from the lengths, on the device, so that a recorded graph
fits any. The query heads that share a key head are the rows of one tile (grouped-query attention,
arXiv 2305.13245), so each key is read once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import (
    DecodeTiles,
    attention_constants,
    decode_tiles,
    early_launch,
    merge_counters,
    num_sms,
    padded,
    row_stride,
    warps_for,
)
from engine.gpu.kernels.tiles import LOG2E, attend_tiles

# A program computes at least so many tiles, as each part of a context must be merged.
_FEWEST_TILES = 2
# Elements of parts that a program merges at a time: 32 a thread.
_MERGED: tl.constexpr = tl.constexpr(4096)
# Up to so many rows, fewer programs share the work: more parts take longer to merge than they save.
_ROWS_WITH_FEWER_PROGRAMS = 4


@triton.jit(do_not_specialize=["rows"])
def _count_tiles(
    lengths,
    counts,
    rows,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    await_inputs(EARLY)
    row = tl.arange(0, ROW_BLOCK)
    length = tl.load(lengths + row, mask=row < rows, other=0)
    tiles = tl.cdiv(length, KEYS)
    if WINDOW > 0:
        tiles -= tl.maximum(length - WINDOW, 0) // KEYS
    tl.store(counts, 0)
    tl.store(counts + 1 + row, tl.cumsum(tiles, 0), mask=row < rows)


def count_tiles(
    lengths: Tensor, *, head_dim: int, dtype: torch.dtype, window: int | None
) -> Tensor:
    """Return what ``decode_attention`` divides the work by, the same for all layers with the same
    window: int32 [rows + 1], how many tiles of keys all rows before have."""
    return _counted(lengths, decode_tiles(head_dim, dtype).keys, window)


def _counted(lengths: Tensor, keys: int, window: int | None) -> Tensor:
    rows = lengths.shape[0]
    counts = torch.empty(rows + 1, dtype=torch.int32, device=lengths.device)
    block = padded(rows)
    _count_tiles[(1,)](
        lengths,
        counts,
        rows,
        KEYS=keys,
        WINDOW=window or 0,
        ROW_BLOCK=block,
        **early_launch(),
        num_warps=warps_for(block),
    )
    return counts


@triton.jit
def _merge_parts(
    partial,
    partial_lse,
    sinks,
    out,
    first,
    parts,
    shift,
    kv_head,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Merge the ``parts`` of all query heads of a key head, of the programs from ``first`` on,
    weighted by their sums of exponentials. ``shift``: the place of the first program's; ``out``:
    the place of the first query head."""
    MEMBERS: tl.constexpr = triton.next_power_of_2(GROUP)
    # As many parts at a time as fit the registers: each tile's loads wait for the one before.
    CHUNK: tl.constexpr = max(_MERGED // (MEMBERS * DIM), 1)
    members = tl.arange(0, MEMBERS)
    dims = tl.arange(0, DIM)
    is_member = members < GROUP
    total = tl.zeros([MEMBERS, DIM], tl.float32)
    top = tl.full([MEMBERS], float("-inf"), tl.float32)
    mass = tl.zeros([MEMBERS], tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + kv_head * GROUP + members, mask=is_member, other=0.0)
        top = sink.to(tl.float32) * LOG2E
        mass += 1.0
    for done in range(0, parts, CHUNK):
        part = done + tl.arange(0, CHUNK)
        slots = (first + part) * 2 + tl.where(part == 0, shift, 0)
        heads = (slots * GROUP).to(tl.int64)[:, None] + members[None, :]
        exists = (part < parts)[:, None] & is_member[None, :]
        # Other programs have just written these: past the L1 cache.
        lse = tl.load(partial_lse + heads, mask=exists, other=float("-inf"), cache_modifier=".cg")
        values = tl.load(
            partial + heads[:, :, None] * HEAD_DIM + dims[None, None, :],
            mask=exists[:, :, None] & (dims < HEAD_DIM)[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        higher = tl.maximum(top, tl.max(lse, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(lse - level[None, :])
        fade = tl.exp2(top - level)
        total = total * fade[:, None] + tl.sum(values * weights[:, :, None], 0)
        mass = mass * fade + tl.sum(weights, 0)
        top = higher
    result = total / tl.where(mass > 0, mass, 1.0)[:, None]
    is_real = is_member[:, None] & (dims < HEAD_DIM)[None, :]
    places = out + members[:, None] * HEAD_DIM + dims[None, :]
    tl.store(places, result.to(out.dtype.element_ty), mask=is_real)


@triton.jit
def _clear_row(
    out,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    members = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    is_real = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    for kv_head in range(KV_HEADS):
        places = out + (kv_head * GROUP + members)[:, None] * HEAD_DIM + dims[None, :]
        zeros = tl.zeros([ROWS, DIM], tl.float32)
        tl.store(places, zeros.to(out.dtype.element_ty), mask=is_real)


@triton.jit
def _row_of(counts, rows, at, KV_HEADS: tl.constexpr, ROW_BLOCK: tl.constexpr):
    """Return the row that tile ``at`` belongs to."""
    every = tl.arange(0, ROW_BLOCK)
    ends = tl.load(counts + 1 + every, mask=every < rows, other=0) * KV_HEADS
    return tl.sum(tl.where((every < rows) & (ends <= at), 1, 0), 0)


@triton.jit
def _part_at(counts, row, at, end, KV_HEADS: tl.constexpr):
    """Return the key head that tile ``at`` belongs to, its first tile and how many it has, and how
    many of them lie in [at, end)."""
    # Volatile: to be read again after the loop over keys, rather than kept in registers.
    before = tl.load(counts + row, volatile=True)
    head_tiles = tl.load(counts + row + 1, volatile=True) - before
    kv_head = (at - before * KV_HEADS) // head_tiles
    head_begin = before * KV_HEADS + kv_head * head_tiles
    return kv_head, head_begin, head_tiles, tl.minimum(head_begin + head_tiles, end) - at


@triton.jit
def _merge_context(
    partial,
    partial_lse,
    finished,
    counts,
    sinks,
    out,
    at,
    share,
    rows,
    out_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Merge the parts of the context and key head that tile ``at`` belongs to, all of which are
    computed, and reset their counter."""
    index = _row_of(counts, rows, at, KV_HEADS, ROW_BLOCK)
    kv_head, head_begin, head_tiles, _ = _part_at(counts, index, at, at + 1, KV_HEADS)
    row = index.to(tl.int64)
    first = head_begin // share
    last = (head_begin + head_tiles - 1) // share
    shift = tl.where(head_begin == first * share, 0, 1)
    _merge_parts(
        partial,
        partial_lse,
        sinks,
        out + row * out_stride + kv_head * (GROUP * HEAD_DIM),
        first,
        last - first + 1,
        shift,
        kv_head,
        GROUP=GROUP,
        HEAD_DIM=HEAD_DIM,
        DIM=DIM,
        HAS_SINKS=HAS_SINKS,
    )
    tl.store(finished + row * KV_HEADS + kv_head, 0)


@triton.jit(do_not_specialize=["rows"])
def _attend_share(
    query,
    cache,
    tables,
    lengths,
    counts,
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
    rows,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    FEWEST: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    DTYPE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute one share. A part of a context that is not all of it goes to ``partial`` float32
    [programs, 2, GROUP, HEAD_DIM] and ``partial_lse`` [programs, 2, GROUP]: in the first place if
    it begins the share, else in the second, as it then ends it. ``finished`` [rows, KV_HEADS]
    counts a context's parts, and is 0 again at the end."""
    await_inputs(EARLY)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    # The last programs have the least other work.
    for idle in range(programs - 1 - program, rows, programs):
        if tl.load(lengths + idle) == 0:
            place = out + tl.cast(idle, tl.int64) * out_stride
            _clear_row(place, KV_HEADS, GROUP, ROWS, HEAD_DIM, DIM)

    all_tiles = tl.load(counts + rows) * KV_HEADS
    share = tl.maximum(tl.cdiv(all_tiles, programs), FEWEST)
    begin = program * share
    end = tl.minimum(begin + share, all_tiles)
    members = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    is_real = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    to_merge = begin * 0  # bits: the context that the share begins with, the one that it ends with
    at = begin
    while at < end:
        index = _row_of(counts, rows, at, KV_HEADS, ROW_BLOCK)
        kv_head, head_begin, _, taken = _part_at(counts, index, at, end, KV_HEADS)
        row = index.to(tl.int64)
        length = tl.load(lengths + row)
        first_tile = tl.maximum(length - WINDOW, 0) // KEYS if WINDOW > 0 else 0
        first_tile = first_tile + (at - head_begin)

        heads = kv_head * GROUP + members
        places = row * query_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        q = tl.load(query + places, mask=is_real, other=0.0).to(DTYPE)
        factor = scale
        if HAS_SCALES:
            factor = scale * tl.load(scales + kv_head)
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
            first_tile + taken,
            length,
            factor,
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
        kv_head, head_begin, head_tiles, taken = _part_at(counts, index, at, end, KV_HEADS)
        heads = kv_head * GROUP + members
        row = index.to(tl.int64)
        if HAS_SCALES:
            total = total * tl.load(scales + KV_HEADS + kv_head)
        if taken == head_tiles:
            if HAS_SINKS:
                sink = tl.load(sinks + heads, mask=members < GROUP, other=0.0)
                sink = sink.to(tl.float32) * LOG2E
                top = tl.maximum(peak, sink)
                total = total * tl.exp2(peak - top)[:, None]
                mass = mass * tl.exp2(peak - top) + tl.exp2(sink - top)
            result = total / tl.where(mass > 0, mass, 1.0)[:, None]
            targets = out + row * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
            tl.store(targets, result.to(out.dtype.element_ty), mask=is_real)
        else:
            result = total / tl.where(mass > 0, mass, 1.0)[:, None]
            lse = tl.where(mass > 0, peak + tl.log2(tl.where(mass > 0, mass, 1.0)), float("-inf"))
            slot = program * 2 + tl.where(at == begin, 0, 1)
            slots = (slot * GROUP + members).to(tl.int64)
            tl.store(partial + slots[:, None] * HEAD_DIM + dims[None, :], result, mask=is_real)
            tl.store(partial_lse + slots, lse, mask=members < GROUP)
            tl.debug_barrier()  # all threads have written before one of them counts
            counter = finished + row * KV_HEADS + kv_head
            first = head_begin // share
            last = (head_begin + head_tiles - 1) // share
            if tl.atomic_add(counter, 1, sem="acq_rel") == last - first:
                to_merge = to_merge | tl.where(at == begin, 1, 2)
        at += taken

    # After the loop, whose registers it would take otherwise.
    for part in tl.static_range(2):
        if (to_merge & (part + 1)) > 0:
            _merge_context(
                partial,
                partial_lse,
                finished,
                counts,
                sinks,
                out,
                begin if part == 0 else end - 1,
                share,
                rows,
                out_stride,
                KV_HEADS=KV_HEADS,
                GROUP=GROUP,
                HEAD_DIM=HEAD_DIM,
                DIM=DIM,
                ROW_BLOCK=ROW_BLOCK,
                HAS_SINKS=HAS_SINKS,
            )


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
    counts: Tensor | None = None,
    out: Tensor | None = None,
    tiles: DecodeTiles | None = None,
    programs: int | None = None,
) -> Tensor:
    """Attend from each row to its whole context: [rows, heads * head_dim] in ``query``'s dtype.

    ``query`` [rows, heads, head_dim], of any stride between rows; ``blocks`` [blocks, 2, kv_heads,
    block_size, head_dim]: one layer of the cache, which must already hold this step's keys;
    ``tables`` int32 [rows or more, blocks]; ``lengths`` int32 [rows or more]: tokens of each
    context, including the row's own; 0: the row is padding and its result 0. ``window``: how many
    of the last tokens are visible; ``soft_cap``: scores become cap * tanh(score / cap); ``sinks``
    [heads]: scores of an extra key without a value; ``scales`` float32 [2, kv_heads]: the factors
    of stored keys and values. ``counts``: of ``count_tiles`` for these rows and this window, if it
    is known. ``tiles`` and ``programs`` override the table's.
    """
    rows, heads, head_dim = query.shape
    kv_heads = blocks.shape[2]
    tiles = tiles or decode_tiles(head_dim, query.dtype)
    programs = programs or num_sms(query.device) * _programs_per_sm(rows, tiles)
    if counts is None:
        counts = _counted(lengths[:rows], tiles.keys, window)
    out = query.new_empty(rows, heads * head_dim) if out is None else out
    partial, partial_lse = _new_partial(query, programs, heads // kv_heads)
    _attend_share[(programs,)](
        *(query, blocks, tables, lengths, counts, scales, sinks, out, partial, partial_lse),
        merge_counters(query.device, rows * kv_heads),
        query.stride(0),
        blocks.stride(0),
        tables.stride(0),
        row_stride(out),
        scale,
        soft_cap or 1.0,
        rows,
        ROWS=padded(heads // kv_heads),
        KEYS=tiles.keys,
        ROW_BLOCK=padded(rows),
        FEWEST=_FEWEST_TILES,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        maxnreg=tiles.registers,
        **early_launch(),
        **attention_constants(
            query, blocks, window=window, soft_cap=soft_cap, sinks=sinks, scales=scales
        ),
    )
    return out


def _programs_per_sm(rows: int, tiles: DecodeTiles) -> int:
    most = 2 if rows <= _ROWS_WITH_FEWER_PROGRAMS else tiles.programs_per_sm
    return min(tiles.programs_per_sm, most)


def _new_partial(query: Tensor, programs: int, group: int) -> tuple[Tensor, Tensor]:
    """Allocate each part's result and log-sum-exp."""
    shape = (programs, 2, group)
    return (
        torch.empty(*shape, query.shape[2], dtype=torch.float32, device=query.device),
        torch.empty(shape, dtype=torch.float32, device=query.device),
    )
