"""Narrows a filter's threshold down to a few values, in one pass over a row.

Values are counted into buckets by their distance from the row's highest. A bucket is 1/64 of the
power of two that its distance (plus 1/16) lies in, so that buckets are narrow where tokens are
likely. Programs that share a row add whole numbers to its tables, in any order. The running sum
over the buckets says which one the threshold is in; only that one's values have to be looked at
again.
"""

import triton
import triton.language as tl

from engine.gpu.kernels.drawing import NEAR, is_limited, key_of, scaled, weight_of

BUCKETS = tl.constexpr(512)
# Tables of each row, so that its programs seldom add to the same place at the same time.
COPIES = tl.constexpr(4)
_OFFSET = tl.constexpr(0.0625)
_SHIFT = tl.constexpr(17)  # leaves 6 bits of the 23 of a float's mantissa
_FIRST = tl.constexpr(0x3D800000 >> 17)  # of _OFFSET's bits
# Float32 errors in what ``first_cut`` estimates are far smaller.
_MARGIN = tl.constexpr(0.01)
# Of each part's candidates, so many are looked at together.
_COLUMNS = tl.constexpr(32)
_FAR = tl.constexpr(1 << 40)  # beyond any key


@triton.jit
def bucket_of(x, top):
    """Return each value's bucket, which never falls as the value does. Those that are 16 or more
    below ``top`` share the last one."""
    distance = top - x + _OFFSET
    return tl.minimum((distance.to(tl.int32, bitcast=True) >> _SHIFT) - _FIRST, BUCKETS - 1)


@triton.jit
def first_cut(peak, temperature, floor, top, top_k, top_p, vocabulary):
    """Return a value, at least ``floor``, that is at most the threshold, or is expected to be.
    ``peak``: the highest logit of each of a row's parts."""
    cut = tl.maximum(floor, top - NEAR)
    if is_limited(top_k, vocabulary):
        # A part's peak that top_k - 1 others reach is at most the top_k-th value.
        reached = tl.sum((peak[None, :] >= peak[:, None]).to(tl.int32), 1)
        least = tl.max(tl.where(reached >= top_k, peak, float("-inf")), 0)
        cut = tl.maximum(cut, tl.div_rn(least, temperature))
    else:
        # What lies below weighs at most as if all tokens were just there: less than is left out.
        x = tl.div_rn(peak, temperature)
        least = tl.sum(tl.where(x >= floor, tl.exp(x - top), 0.0), 0)
        left_out = least * (1.0 - top_p).to(tl.float32)
        cut = tl.maximum(cut, top + tl.log(left_out / vocabulary) - _MARGIN)
    return cut


@triton.jit
def add_to_table(
    logits,
    table,
    vocabulary,
    temperature,
    floor,
    cut,
    top,
    BY_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the values that are at least ``cut`` to their buckets: their weights, or one for each.
    Returns the weight of all that are at least ``floor``, or 0."""
    whole = tl.zeros([BLOCK], tl.int64)
    for first in range(0, vocabulary, BLOCK):
        places = first + tl.arange(0, BLOCK)
        x = scaled(logits, places, vocabulary, temperature)
        exists = places < vocabulary
        amount = tl.full([BLOCK], 1, tl.int64)
        if BY_WEIGHT:
            amount = weight_of(x, top)
            whole += tl.where(exists & (x >= floor), amount, 0)
        tl.atomic_add(
            table + bucket_of(x, top), amount, mask=exists & (x >= cut), sem="relaxed", scope="gpu"
        )
    return tl.sum(whole, 0)


@triton.jit
def find_bucket(tables, wanted):
    """Return the bucket in which the running sum of a row's tables reaches ``wanted`` (or the
    last one), the sum of those before it, and of all."""
    buckets = tl.arange(0, BUCKETS)
    amounts = tl.load(tables + buckets)
    for table in tl.static_range(1, COPIES):
        amounts += tl.load(tables + table * BUCKETS + buckets)
    bucket = tl.sum((tl.cumsum(amounts, 0) < wanted).to(tl.int32), 0)
    bucket = tl.minimum(bucket, BUCKETS - 1)
    before = tl.sum(tl.where(buckets < bucket, amounts, 0), 0)
    return bucket, before, tl.sum(amounts, 0)


@triton.jit
def gather_buckets(
    logits, values, vocabulary, temperature, cut, top, begin, last, BLOCK: tl.constexpr
):
    """Write the scaled logits that are at least ``cut`` and in the buckets ``begin`` to ``last`` to
    ``values``. Returns their number, and the weight of all in buckets before ``begin``."""
    count = 0
    heavier = tl.zeros([BLOCK], tl.int64)
    for first in range(0, vocabulary, BLOCK):
        places = first + tl.arange(0, BLOCK)
        x = scaled(logits, places, vocabulary, temperature)
        bucket = bucket_of(x, top)
        exists = (places < vocabulary) & (x >= cut)
        heavier += tl.where(exists & (bucket < begin), weight_of(x, top), 0)
        kept = exists & (bucket >= begin) & (bucket <= last)
        found = kept.to(tl.int32)
        tl.store(values + count + tl.cumsum(found, 0) - 1, x, mask=kept)
        count += tl.sum(found, 0)
    return count, tl.sum(heavier, 0)


@triton.jit
def _columns(values, counts, first, width, PARTS: tl.constexpr):
    """Return candidates of all parts, [PARTS, _COLUMNS], and which of them exist."""
    columns = first + tl.arange(0, _COLUMNS)
    exists = columns[None, :] < counts[:, None]
    at = tl.arange(0, PARTS)[:, None] * width + columns[None, :]
    return tl.load(values + at, mask=exists, other=float("-inf")), exists


@triton.jit
def threshold_of_parts(
    values, counts, width, wanted, top, BY_WEIGHT: tl.constexpr, PARTS: tl.constexpr
):
    """Return the largest key such that at least ``wanted`` candidates, or that much weight, lie at
    or above it. In total there must be that much. Of part i, ``counts[i]`` candidates begin at
    ``values + i * width``."""
    most = tl.max(counts, 0)
    high = key_of(top)
    low = high - high - 2147483648
    while low < high:
        middle = low + (high - low + 1) // 2
        amounts = tl.zeros([PARTS, _COLUMNS], tl.int64)
        above = tl.full([PARTS, _COLUMNS], _FAR, tl.int64)
        below = tl.full([PARTS, _COLUMNS], -_FAR, tl.int64)
        for first in range(0, most, _COLUMNS):
            x, exists = _columns(values, counts, first, width, PARTS)
            key = key_of(x)
            reaches = exists & (key >= middle)
            amounts += tl.where(reaches, weight_of(x, top) if BY_WEIGHT else 1, 0)
            above = tl.where(reaches, tl.minimum(above, key), above)
            below = tl.where(exists & (key < middle), tl.maximum(below, key), below)
        # Only to values that occur, so that it ends at one.
        if tl.sum(amounts) >= wanted:
            low = tl.min(above)
        else:
            high = tl.max(below)
    return low


@triton.jit
def masses_of_parts(values, counts, width, top, threshold, PARTS: tl.constexpr):
    """Return the weight of each part's candidates at or above ``threshold``, [PARTS]."""
    masses = tl.zeros([PARTS, _COLUMNS], tl.int64)
    for first in range(0, tl.max(counts, 0), _COLUMNS):
        x, exists = _columns(values, counts, first, width, PARTS)
        masses += tl.where(exists & (key_of(x) >= threshold), weight_of(x, top), 0)
    return tl.sum(masses, 1)
