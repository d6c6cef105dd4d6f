"""Steps of the sampling kernels: the likeliest token, thresholds found without a sort, a quantile.
``engine.gpu.kernels.sampling`` says how they belong together."""

import triton
import triton.language as tl

# Tokens less likely than the likeliest by this much (as a logarithm) are considered only if the
# others do not suffice.
NEAR = tl.constexpr(16.0)
_UNIT = tl.constexpr(17592186044416.0)  # 2^44
_FAR = tl.constexpr(1 << 40)  # beyond any key


@triton.jit
def key_of(x):
    """Return integers that order as floats do; both zeros map to the same one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@triton.jit
def weight_of(x, top):
    """Return probabilities relative to the likeliest token's, as integers."""
    return (tl.exp(x - top) * _UNIT).to(tl.int64)


@triton.jit
def scaled(values, places, count, temperature):
    x = tl.load(values + places, mask=places < count, other=float("-inf")).to(tl.float32)
    return tl.div_rn(x, temperature)


@triton.jit
def largest(logits, vocabulary, BLOCK: tl.constexpr):
    """Return the highest logit (NaN if any logit is NaN) and the first token that has it."""
    peaks = tl.full([BLOCK], float("-inf"), tl.float32)
    tokens = tl.zeros([BLOCK], tl.int32)
    broken = tl.zeros([BLOCK], tl.int32)
    for first in range(0, vocabulary, BLOCK):
        places = first + tl.arange(0, BLOCK)
        x = tl.load(logits + places, mask=places < vocabulary, other=float("-inf")).to(tl.float32)
        tokens = tl.where(x > peaks, places, tokens)
        peaks = tl.where(x > peaks, x, peaks)
        broken = broken | (x != x).to(tl.int32)
    best = tl.max(peaks, 0)
    token = tl.min(tl.where(peaks == best, tokens, vocabulary), 0)
    best = tl.where(tl.max(broken, 0) > 0, float("nan"), best)
    return best, tl.minimum(token, vocabulary - 1)


@triton.jit
def gather_candidates(
    logits, values, ids, vocabulary, temperature, floor, cut, top, BLOCK: tl.constexpr
):
    """Write the scaled logits that are at least ``cut`` to ``values`` and their tokens to ``ids``,
    in order. Returns their number, their weight, and the weight of all that are at least
    ``floor``."""
    count = 0
    near = tl.zeros([BLOCK], tl.int64)
    whole = tl.zeros([BLOCK], tl.int64)
    for first in range(0, vocabulary, BLOCK):
        places = first + tl.arange(0, BLOCK)
        x = scaled(logits, places, vocabulary, temperature)
        exists = places < vocabulary
        weight = weight_of(x, top)
        whole += tl.where(exists & (x >= floor), weight, 0)
        kept = exists & (x >= cut)
        near += tl.where(kept, weight, 0)
        found = kept.to(tl.int32)
        target = count + tl.cumsum(found, 0) - 1
        tl.store(values + target, x, mask=kept)
        tl.store(ids + target, places, mask=kept)
        count += tl.sum(found, 0)
    tl.debug_barrier()  # threads read what others wrote
    return count, tl.sum(near, 0), tl.sum(whole, 0)


@triton.jit
def find_threshold(values, count, wanted, top, BY_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Return the largest key such that at least ``wanted`` tokens, or that much weight, of
    ``values`` [count] lie at or above it. In total there must be that much."""
    high = key_of(top)
    low = high - high - 2147483648
    while low < high:
        middle = low + (high - low + 1) // 2
        amounts = tl.zeros([BLOCK], tl.int64)
        above = tl.full([BLOCK], _FAR, tl.int64)
        below = tl.full([BLOCK], -_FAR, tl.int64)
        for first in range(0, count, BLOCK):
            places = first + tl.arange(0, BLOCK)
            exists = places < count
            x = tl.load(values + places, mask=exists, other=float("-inf"))
            key = key_of(x)
            reaches = exists & (key >= middle)
            amounts += tl.where(reaches, weight_of(x, top) if BY_WEIGHT else 1, 0)
            above = tl.where(reaches, tl.minimum(above, key), above)
            below = tl.where(exists & (key < middle), tl.maximum(below, key), below)
        enough = tl.sum(amounts, 0) >= wanted
        low = tl.where(enough, tl.min(above, 0), low)
        high = tl.where(enough, high, tl.max(below, 0))
    return low


@triton.jit
def kept_weight(values, places, count, temperature, top, threshold):
    x = scaled(values, places, count, temperature)
    return tl.where((places < count) & (key_of(x) >= threshold), weight_of(x, top), 0)


@triton.jit
def kept_mass(values, count, temperature, top, threshold, BLOCK: tl.constexpr):
    """Return the sum of the weights of values at or above ``threshold``."""
    sums = tl.zeros([BLOCK], tl.int64)
    for first in range(0, count, BLOCK):
        places = first + tl.arange(0, BLOCK)
        sums += kept_weight(values, places, count, temperature, top, threshold)
    return tl.sum(sums, 0)


@triton.jit
def goal_of(fraction, total):
    """Return the weight that is to lie before a token at quantile ``fraction``, at most."""
    return tl.minimum((fraction * total.to(tl.float64)).to(tl.int64), total - 1)


@triton.jit
def quantile(values, count, temperature, top, threshold, fraction, BLOCK: tl.constexpr):
    """Return the index in ``values`` at which the running sum of the weights at or above
    ``threshold`` passes ``fraction`` of their total."""
    total = kept_mass(values, count, temperature, top, threshold, BLOCK)
    return place_of(values, count, temperature, top, threshold, goal_of(fraction, total), BLOCK)


@triton.jit
def place_of(values, count, temperature, top, threshold, goal, BLOCK: tl.constexpr):
    """Return the index in ``values`` at which that running sum passes ``goal``."""
    before = goal - goal
    tile = 0
    tile_before = before
    for first in range(0, count, BLOCK):
        places = first + tl.arange(0, BLOCK)
        after = before + tl.sum(kept_weight(values, places, count, temperature, top, threshold), 0)
        passes = (before <= goal) & (after > goal)
        tile = tl.where(passes, first, tile)
        tile_before = tl.where(passes, before, tile_before)
        before = after
    places = tile + tl.arange(0, BLOCK)
    weights = kept_weight(values, places, count, temperature, top, threshold)
    behind = tl.cumsum(weights, 0) + tile_before <= goal
    return tl.minimum(tile + tl.sum(behind.to(tl.int32), 0), count - 1)


@triton.jit
def is_limited(top_k, vocabulary):
    """True if top-k hides anything."""
    return (top_k > 0) & (top_k < vocabulary)


@triton.jit
def is_filtered(top_k, top_p, vocabulary):
    """True if a row needs its candidates gathered."""
    return is_limited(top_k, vocabulary) | (top_p < 1.0)


@triton.jit
def share_of(top_p, whole):
    """Return how much weight, of ``whole``, top-p keeps at least."""
    return tl.maximum(tl.ceil(top_p * whole.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def lacks(count, near, whole, top_k, top_p, vocabulary):
    """True if ``count`` candidates of weight ``near``, of ``whole``, are too few for the filters:
    top-k comes first."""
    return tl.where(is_limited(top_k, vocabulary), count < top_k, near < share_of(top_p, whole))


@triton.jit
def filtered_place(
    values, count, whole, top_k, top_p, vocabulary, floor, top, fraction, BLOCK: tl.constexpr
):
    """Return the index in the candidates ``values`` [count] of the one that is drawn. ``whole``:
    the weight of all tokens at or above ``floor``."""
    threshold = key_of(floor)
    if is_limited(top_k, vocabulary) & (count >= top_k):
        threshold = tl.maximum(
            threshold, find_threshold(values, count, top_k.to(tl.int64), top, False, BLOCK)
        )
        whole = kept_mass(values, count, 1.0, top, threshold, BLOCK)
    if top_p < 1.0:
        wanted = share_of(top_p, whole)
        threshold = tl.maximum(threshold, find_threshold(values, count, wanted, top, True, BLOCK))
    return quantile(values, count, 1.0, top, threshold, fraction, BLOCK)
