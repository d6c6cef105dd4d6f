"""Samples the next token of every row, on the device and without a sort.

It implements ``engine.sampling.sampler.draw``: temperature, min-p, top-k, top-p, then the token at
a quantile, in order of token ids. Each filter keeps the tokens at or above one of the row's values,
so the filters reduce to one threshold, the highest of three, and equal values are kept or dropped
together, as they are there. A threshold is the largest value v such that enough lies at or above v:
enough tokens for top-k, enough probability for top-p. Both decrease as v grows, so a bisection
finds it. The bisection runs over integers that order as floats do and always moves to values that
occur, so that it ends at the exact one.

Probabilities are summed as integer multiples of 2^-44 of the likeliest token's. Such sums are exact
in any order, so a row gets the same token in any launch. Less likely tokens are never drawn (the
reference might, once in 10^13 draws).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import row_stride
from engine.gpu.kernels.philox import uniform
from engine.sampling.device import SamplingTensors

_BLOCK = 2048
# Tokens less likely than the likeliest by this much (as a logarithm) are considered only if the
# others do not suffice.
_NEAR = tl.constexpr(16.0)
_UNIT = tl.constexpr(17592186044416.0)  # 2^44
_FAR = tl.constexpr(1 << 40)  # beyond any key


@triton.jit
def _key(x):
    """Return integers that order as floats do; both zeros map to the same one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@triton.jit
def _weight(x, top):
    """Return probabilities relative to the likeliest token's, as integers."""
    return (tl.exp(x - top) * _UNIT).to(tl.int64)


@triton.jit
def _scaled(values, places, count, temperature):
    x = tl.load(values + places, mask=places < count, other=float("-inf")).to(tl.float32)
    return tl.div_rn(x, temperature)


@triton.jit
def _largest(logits, vocabulary, BLOCK: tl.constexpr):
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
def _gather_candidates(
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
        x = _scaled(logits, places, vocabulary, temperature)
        exists = places < vocabulary
        weight = _weight(x, top)
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
def _threshold(values, count, wanted, top, BY_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Return the largest key such that at least ``wanted`` tokens, or that much weight, of
    ``values`` [count] lie at or above it. In total there must be that much."""
    high = _key(top)
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
            key = _key(x)
            reaches = exists & (key >= middle)
            amounts += tl.where(reaches, _weight(x, top) if BY_WEIGHT else 1, 0)
            above = tl.where(reaches, tl.minimum(above, key), above)
            below = tl.where(exists & (key < middle), tl.maximum(below, key), below)
        enough = tl.sum(amounts, 0) >= wanted
        low = tl.where(enough, tl.min(above, 0), low)
        high = tl.where(enough, high, tl.max(below, 0))
    return low


@triton.jit
def _kept_weight(values, places, count, temperature, top, threshold):
    x = _scaled(values, places, count, temperature)
    return tl.where((places < count) & (_key(x) >= threshold), _weight(x, top), 0)


@triton.jit
def _kept_mass(values, count, temperature, top, threshold, BLOCK: tl.constexpr):
    """Return the sum of the weights of values at or above ``threshold``."""
    sums = tl.zeros([BLOCK], tl.int64)
    for first in range(0, count, BLOCK):
        places = first + tl.arange(0, BLOCK)
        sums += _kept_weight(values, places, count, temperature, top, threshold)
    return tl.sum(sums, 0)


@triton.jit
def _quantile(values, count, temperature, top, threshold, fraction, BLOCK: tl.constexpr):
    """Return the index in ``values`` at which the running sum of the weights at or above
    ``threshold`` passes ``fraction`` of their total."""
    total = _kept_mass(values, count, temperature, top, threshold, BLOCK)
    goal = tl.minimum((fraction * total.to(tl.float64)).to(tl.int64), total - 1)
    before = total - total
    tile = 0
    tile_before = before
    for first in range(0, count, BLOCK):
        places = first + tl.arange(0, BLOCK)
        after = before + tl.sum(_kept_weight(values, places, count, temperature, top, threshold), 0)
        passes = (before <= goal) & (after > goal)
        tile = tl.where(passes, first, tile)
        tile_before = tl.where(passes, before, tile_before)
        before = after
    places = tile + tl.arange(0, BLOCK)
    weights = _kept_weight(values, places, count, temperature, top, threshold)
    behind = tl.cumsum(weights, 0) + tile_before <= goal
    return tl.minimum(tile + tl.sum(behind.to(tl.int32), 0), count - 1)


@triton.jit
def _sample(
    logits,
    temperatures,
    log_min_ps,
    top_ks,
    top_ps,
    seeds,
    positions,
    values,
    ids,
    tokens,
    bests,
    rows,
    stride,
    vocabulary,
    HAS_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    logits += place * stride
    values += place * vocabulary
    ids += place * vocabulary
    row = tl.load(rows + place) if HAS_ROWS else place
    best, token = _largest(logits, vocabulary, BLOCK)
    tl.store(bests + row, best)
    temperature = tl.load(temperatures + row)
    if (temperature > 0) & (best - best == 0):
        top = tl.div_rn(best, temperature)
        top_k = tl.load(top_ks + row)
        top_p = tl.load(top_ps + row)
        floor = top + tl.load(log_min_ps + row)
        fraction = uniform(tl.load(seeds + row), tl.load(positions + row))
        by_rank = (top_k > 0) & (top_k < vocabulary)
        by_mass = top_p < 1.0
        if by_rank | by_mass:
            cut = tl.maximum(floor, top - _NEAR)
            count, near, whole = _gather_candidates(
                logits, values, ids, vocabulary, temperature, floor, cut, top, BLOCK
            )
            wanted = tl.ceil(top_p * whole.to(tl.float64)).to(tl.int64)
            lacks = tl.where(by_rank, count < top_k, near < wanted)
            if (cut > floor) & lacks:
                tl.debug_barrier()
                count, near, whole = _gather_candidates(
                    logits, values, ids, vocabulary, temperature, floor, floor, top, BLOCK
                )
            threshold = _key(floor)
            if by_rank & (count >= top_k):
                threshold = tl.maximum(
                    threshold, _threshold(values, count, top_k.to(tl.int64), top, False, BLOCK)
                )
                whole = _kept_mass(values, count, 1.0, top, threshold, BLOCK)
            if by_mass:
                wanted = tl.maximum(tl.ceil(top_p * whole.to(tl.float64)).to(tl.int64), 1)
                threshold = tl.maximum(
                    threshold, _threshold(values, count, wanted, top, True, BLOCK)
                )
            drawn = _quantile(values, count, 1.0, top, threshold, fraction, BLOCK)
            token = tl.load(ids + drawn)
        else:
            token = _quantile(logits, vocabulary, temperature, top, _key(floor), fraction, BLOCK)
    tl.store(tokens + row, token)


def sample(
    logits: Tensor,
    params: SamplingTensors,
    positions: Tensor,
    *,
    rows: Tensor | None = None,
    tokens: Tensor | None = None,
    bests: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return int32 and float32 [rows]: a token for each row of ``logits`` [rows, vocabulary],
    float32 or narrower, and the row's highest logit; if that is not finite, the token is
    meaningless.

    ``positions`` (integers [rows]): the position in its sequence that each token will have.
    ``tokens`` and ``bests``: where to write the results, if given. ``rows`` (int64 [rows]): the
    row of ``params``, ``positions``, ``tokens`` and ``bests``, which must be given then, that each
    row of ``logits`` belongs to.
    """
    count, vocabulary = logits.shape
    device = logits.device
    if tokens is None:
        tokens = torch.empty(count, dtype=torch.int32, device=device)
    if bests is None:
        bests = torch.empty(count, dtype=torch.float32, device=device)
    # Only rows with top-k or top-p write candidates.
    values = torch.empty(count, vocabulary, dtype=torch.float32, device=device)
    ids = torch.empty(count, vocabulary, dtype=torch.int32, device=device)
    _sample[(count,)](
        logits,
        params.temperature,
        params.log_min_p,
        params.top_k,
        params.top_p,
        params.seeds,
        positions,
        values,
        ids,
        tokens,
        bests,
        rows,
        row_stride(logits),
        vocabulary,
        HAS_ROWS=rows is not None,
        BLOCK=min(_BLOCK, max(16, triton.next_power_of_2(vocabulary))),
        num_warps=8,
    )
    return tokens, bests
