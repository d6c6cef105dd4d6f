"""How the keys of prompts' attention are divided among programs.

A tile of query rows is computed by one program, unless there are too few tiles to keep the device
busy: then those with the most keys are cut into equal parts, each a program's. All tiles of a
sequence are cut alike, so that programs that run together read the same keys at the same time.
Whether and how follows from the lengths, on the device, so that a recorded graph fits any.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import RaggedTiles, num_sms, padded, ragged_tiles

# Of a row of ``RaggedParts.table``, int32: the sequence, how many of its tokens are before the
# tile's, which of the tile's parts this is and how many it has (0: the row is unused), where its
# result goes among all parts, and the sequence's first row, rows and length.
FIELDS = 8
_BLOCK = 32
# At most this many parts for each program that can run at a time: more divide more evenly, but the
# result of each is written and read once more.
_MOST_WAVES = 2
# Nothing is cut unless it should then end in half the time: on an H100 a prompt of 1,024 tokens of
# a small model took longer in two parts.
_LEAST_GAIN = 2
# A part has at least so many keys.
FEWEST_KEYS = 512


class RaggedParts(NamedTuple):
    """``table`` int32 [items, FIELDS]: what each program of a key head computes; ``slots``: at most
    so many of them, for each key head, are parts of a tile."""

    table: Tensor
    slots: int


@triton.jit
def _part_sizes(
    tiles,
    keys,
    programs,
    KV_HEADS: tl.constexpr,
    FEWEST: tl.constexpr,
    COST: tl.constexpr,
    MOST_WAVES: tl.constexpr,
    LEAST_GAIN: tl.constexpr,
):
    """Return in how many parts each tile of a sequence is cut. ``tiles`` and ``keys``: query tiles
    of each sequence, and tiles of keys of each of those. Tried are: none is cut; all keys are
    divided among as many programs as run at a time, or twice as many. That which should end first
    is taken, with the time of cut tiles counted ``LEAST_GAIN`` times. It ends when all waves of the
    largest part would, or, if sooner, when equal shares of the whole would and then the largest
    part."""
    total = tl.sum((tiles * keys).to(tl.int64), 0) * KV_HEADS
    whole = tl.maximum(tl.max(keys, 0), 1)
    best = tiles * 0 + 1
    least = total * 0 + 9223372036854775807
    for waves in tl.static_range(MOST_WAVES + 1):
        share = whole
        if waves > 0:
            share = tl.maximum(tl.cdiv(total, waves * programs), FEWEST).to(tl.int32)
        parts = tl.maximum(keys // share, 1)
        size = tl.cdiv(keys, parts) + tl.where(parts > 1, COST, 0)
        count = tl.sum(tiles * parts, 0) * KV_HEADS
        work = tl.sum((tiles * parts * size).to(tl.int64), 0) * KV_HEADS
        largest = tl.max(size, 0)
        end = tl.cdiv(count, programs).to(tl.int64) * largest
        end = tl.minimum(end, tl.cdiv(work, programs) + largest)
        if waves > 0:
            end *= LEAST_GAIN
        best = tl.where(end < least, parts, best)
        least = tl.minimum(end, least)
    return best


@triton.jit(do_not_specialize=["sequences", "items", "programs"])
def _plan_parts(
    lengths,
    cu_seqlens,
    table,
    sequences,
    items,
    programs,
    KV_HEADS: tl.constexpr,
    TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    FEWEST: tl.constexpr,
    COST: tl.constexpr,
    MOST_WAVES: tl.constexpr,
    LEAST_GAIN: tl.constexpr,
    FIELDS: tl.constexpr,
    SEQUENCE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``BLOCK`` rows of ``table``: of each sequence the first part of all its tiles, the
    last tile first, then the second, and so on."""
    sequence = tl.arange(0, SEQUENCE_BLOCK)
    exists = sequence < sequences
    first_row = tl.load(cu_seqlens + sequence, mask=exists, other=0)
    count = tl.load(cu_seqlens + sequence + 1, mask=exists, other=0) - first_row
    length = tl.load(lengths + sequence, mask=exists, other=0)
    tiles = tl.cdiv(count, TOKENS)
    keys = tl.cdiv(length, KEYS)
    if WINDOW > 0:
        keys = tl.minimum(keys, (WINDOW + TOKENS + KEYS - 3) // KEYS + 1)
    keys = tl.where(tiles > 0, keys, 0)
    parts = _part_sizes(tiles, keys, programs, KV_HEADS, FEWEST, COST, MOST_WAVES, LEAST_GAIN)
    own = tiles * parts
    end = tl.cumsum(own, 0)
    begin = end - own
    cut = tl.where(parts > 1, own, 0)
    first_slot = tl.cumsum(cut, 0) - cut

    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_own = (begin[None, :] <= item[:, None]) & (item[:, None] < end[None, :])
    tiles = tl.sum(tl.where(is_own, tiles[None, :], 0), 1)
    parts = tl.sum(tl.where(is_own, parts[None, :], 0), 1)
    place = item - tl.sum(tl.where(is_own, begin[None, :], 0), 1)
    part = place // tl.maximum(tiles, 1)
    tile = tiles - 1 - place % tl.maximum(tiles, 1)
    slot = tl.sum(tl.where(is_own, first_slot[None, :], 0), 1) + tile * parts + part

    row = table + item * FIELDS
    written = item < items
    tl.store(row, tl.sum(tl.where(is_own, sequence[None, :], 0), 1), mask=written)
    tl.store(row + 1, tile * TOKENS, mask=written)
    tl.store(row + 2, part, mask=written)
    tl.store(row + 3, parts, mask=written)
    tl.store(row + 4, slot, mask=written)
    tl.store(row + 5, tl.sum(tl.where(is_own, first_row[None, :], 0), 1), mask=written)
    tl.store(row + 6, tl.sum(tl.where(is_own, count[None, :], 0), 1), mask=written)
    tl.store(row + 7, tl.sum(tl.where(is_own, length[None, :], 0), 1), mask=written)


def tile_rows(tiles: RaggedTiles, group: int) -> int:
    """Return the rows of a tile with ``group`` query heads per key head."""
    return max(tiles.rows, padded(group))


def plan_parts(
    lengths: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    *,
    rows: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    window: int | None,
    tiles: RaggedTiles | None = None,
    programs: int | None = None,
    fewest_keys: int = FEWEST_KEYS,
    least_gain: int = _LEAST_GAIN,
) -> RaggedParts:
    """Return what ``ragged_attention`` divides the work by, the same for all layers with the same
    window. For ``lengths``, ``cu_seqlens`` and ``longest`` see there; ``rows``: of the query;
    ``dtype``: its type. ``tiles``, ``programs`` (how many can run at a time), ``fewest_keys`` (of a
    part) and ``least_gain`` (by which a cut must be faster) override the table's."""
    tiles = tiles or ragged_tiles(head_dim, dtype)
    programs = programs or num_sms(lengths.device) * tiles.programs_per_sm
    group = heads // kv_heads
    tokens = tile_rows(tiles, group) // group
    sequences = cu_seqlens.shape[0] - 1
    used = min(rows, sequences)
    most_tiles = min(
        sequences * triton.cdiv(longest, tokens), (rows + used * (tokens - 1)) // tokens
    )
    slots = _MOST_WAVES * programs // kv_heads
    items = most_tiles + slots
    table = torch.empty(items, FIELDS, dtype=torch.int32, device=lengths.device)
    _plan_parts[(triton.cdiv(items, _BLOCK),)](
        lengths,
        cu_seqlens,
        table,
        sequences,
        items,
        programs,
        KV_HEADS=kv_heads,
        TOKENS=tokens,
        KEYS=tiles.keys,
        WINDOW=window or 0,
        FEWEST=max(1, fewest_keys // tiles.keys),
        # To write and read a part's result takes as long as the keys and values of so many tiles.
        COST=max(1, 4 * tile_rows(tiles, group) // (tiles.keys * dtype.itemsize)),
        MOST_WAVES=_MOST_WAVES,
        LEAST_GAIN=least_gain,
        FIELDS=FIELDS,
        SEQUENCE_BLOCK=padded(sequences),
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return RaggedParts(table, slots)
