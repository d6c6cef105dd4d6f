"""Attention for any number of sequences over the paged KV cache: any mix of prompts, parts of
prompts and single tokens.

A tile holds consecutive tokens of one sequence, times the query heads of one key head. Keys that
are visible to every row of a tile are read without masks; only the diagonal and a window's edge
need them.
"""

import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import (
    RaggedTiles,
    attention_constants,
    padded,
    ragged_tiles,
    row_stride,
)
from engine.gpu.kernels.tiles import LOG2E, attend_tiles


@triton.jit
def _attend_ragged(
    query,
    cache,
    tables,
    lengths,
    cu_seqlens,
    scales,
    sinks,
    out,
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
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    DTYPE: tl.constexpr,
    UNIFORM: tl.constexpr,
):
    """Compute one tile of one sequence and key head. The last tiles have the most keys, so they
    start first. With ``UNIFORM``, all keys go through the masked loop: the compiler may round the
    two loops differently, and which keys each gets depends on the tile's other rows."""
    TOKENS: tl.constexpr = ROWS // GROUP
    kv_head = tl.program_id(0)
    sequence = tl.program_id(1)
    tile = tl.num_programs(2) - 1 - tl.program_id(2)
    first_row = tl.load(cu_seqlens + sequence)
    count = tl.load(cu_seqlens + sequence + 1) - first_row
    length = tl.load(lengths + sequence)
    skipped = tile * TOKENS
    if skipped >= count:
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
    if UNIFORM:
        end_full = first_tile

    total = tl.zeros([ROWS, DIM], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    positions = length - count + tokens
    table = tables + sequence.to(tl.int64) * table_stride
    head_offset = kv_head * (BLOCK_SIZE * HEAD_DIM)
    # In order: the window's edge, what all rows see, the diagonal.
    for part in tl.static_range(3):
        if part == 2 or (not UNIFORM and (part == 1 or WINDOW > 0)):
            begin = first_tile if part == 0 else (first_full if part == 1 else end_full)
            end = first_full if part == 0 else (end_full if part == 1 else end_tile)
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
                begin,
                end,
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
                MASKED=part != 1,
                DTYPE=DTYPE,
            )
    if HAS_SCALES:
        total = total * tl.load(scales + KV_HEADS + kv_head)
    if HAS_SINKS:
        sink = tl.load(sinks + heads).to(tl.float32) * LOG2E
        top = tl.maximum(peak, sink)
        total = total * tl.exp2(peak - top)[:, None]
        mass = mass * tl.exp2(peak - top) + tl.exp2(sink - top)
    result = total / tl.where(mass > 0, mass, 1.0)[:, None]
    places = rows[:, None] * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
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
    out: Tensor | None = None,
    tiles: RaggedTiles | None = None,
    uniform: bool = False,
) -> Tensor:
    """Attend from each token to its sequence up to itself. Returns [tokens, heads * head_dim].

    ``query`` [tokens, heads, head_dim]; ``cu_seqlens`` int32 [sequences + 1]: sequence i has rows
    [cu_seqlens[i], cu_seqlens[i + 1]), the last tokens of its context of ``lengths[i]`` (int32
    [sequences]); ``longest``: the most rows of any sequence. For the other arguments see
    ``decode_attention``. Rows of ``out`` that belong to no sequence are not written. ``uniform``:
    with the same ``tiles``, a token's result is the same to the bit whatever the other rows are.
    """
    _, heads, head_dim = query.shape
    kv_heads = blocks.shape[2]
    tiles = tiles or ragged_tiles(head_dim, query.dtype)
    if out is None:
        out = query.new_empty(query.shape[0], heads * head_dim)
    group = heads // kv_heads
    rows = max(tiles.rows, padded(group))
    grid = (kv_heads, cu_seqlens.shape[0] - 1, triton.cdiv(longest, rows // group))
    _attend_ragged[grid](
        query,
        blocks,
        tables,
        lengths,
        cu_seqlens,
        scales,
        sinks,
        out,
        query.stride(0),
        blocks.stride(0),
        tables.stride(0),
        row_stride(out),
        scale,
        soft_cap or 1.0,
        ROWS=rows,
        KEYS=tiles.keys,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        UNIFORM=uniform,
        **attention_constants(
            query, blocks, window=window, soft_cap=soft_cap, sinks=sinks, scales=scales
        ),
    )
    return out
