"""Samples rows with several programs for each, which divide the vocabulary.

One program per row leaves most of a device idle when there are few rows, and waits for memory and
for itself when there are many. Parts pass on maxima and sums of whole numbers, which do not depend
on how the row was divided, so the tokens are those of ``engine.gpu.kernels.sampling``.

A row with top-k or top-p is read three times: for its highest logit, for the buckets
(``engine.gpu.kernels.buckets``) that say where the threshold is, and for the values of that
bucket, among which the last of the row's programs to get there finds it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.buckets import (
    BUCKETS,
    COPIES,
    add_to_table,
    bucket_of,
    find_bucket,
    first_cut,
    gather_buckets,
    masses_of_parts,
    threshold_of_parts,
)
from engine.gpu.kernels.drawing import (
    filtered_place,
    gather_candidates,
    goal_of,
    is_filtered,
    is_limited,
    kept_mass,
    key_of,
    largest,
    place_of,
    share_of,
)
from engine.gpu.kernels.launch import row_stride
from engine.gpu.kernels.philox import uniform
from engine.sampling.device import SamplingTensors

PARTS = 32
_BLOCK = 2048
_PICK_BLOCK = 1024


@triton.jit
def _find_peaks(
    logits,
    peaks,
    leaders,
    tables,
    arrivals,
    stride,
    vocabulary,
    width,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find each part's highest logit, and the first token that has it. Clear what the next
    kernels count in."""
    place, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    SHARE: tl.constexpr = COPIES * BUCKETS // PARTS
    cleared = (place * PARTS + part) * SHARE + tl.arange(0, SHARE)
    tl.store(tables + cleared, tl.zeros([SHARE], tl.int64))
    tl.store(arrivals + place, 0, mask=part == 0)
    first = part * width
    count = tl.minimum(width, vocabulary - first)
    best, token = largest(logits + place * stride + first, count, BLOCK)
    slot = place * PARTS + part
    tl.store(peaks + slot, best)
    tl.store(leaders + slot, first + token)


@triton.jit
def _row_peak(peaks, leaders, place, vocabulary, PARTS: tl.constexpr):
    """Return a row's highest logit (NaN if any is NaN) and the first token that has it."""
    slots = place * PARTS + tl.arange(0, PARTS)
    peak = tl.load(peaks + slots)
    is_nan = peak != peak
    peak = tl.where(is_nan, float("-inf"), peak)
    best = tl.max(peak, 0)
    token = tl.min(tl.where(peak == best, tl.load(leaders + slots), vocabulary), 0)
    best = tl.where(tl.max(is_nan.to(tl.int32), 0) > 0, float("nan"), best)
    return best, tl.minimum(token, vocabulary - 1)


@triton.jit
def _weigh_parts(
    logits,
    temperatures,
    log_min_ps,
    top_ks,
    top_ps,
    peaks,
    leaders,
    tables,
    cuts,
    wholes,
    rows,
    stride,
    vocabulary,
    width,
    HAS_ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum each part's weights, and add them to the row's tables if it is filtered."""
    place, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(rows + place) if HAS_ROWS else place
    temperature = tl.load(temperatures + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    best, _ = _row_peak(peaks, leaders, place, vocabulary, PARTS)
    if (temperature > 0) & (best - best == 0):
        first = part * width
        size = tl.minimum(width, vocabulary - first)
        own = logits + place * stride + first
        top = tl.div_rn(best, temperature)
        floor = top + tl.load(log_min_ps + row)
        slot = place * PARTS + part
        if is_filtered(top_k, top_p, vocabulary):
            peak = tl.load(peaks + place * PARTS + tl.arange(0, PARTS))
            cut = first_cut(peak, temperature, floor, top, top_k, top_p, vocabulary)
            tl.store(cuts + place, cut, mask=part == 0)
            table = tables + (place * COPIES + part % COPIES) * BUCKETS
            if is_limited(top_k, vocabulary):
                if tl.div_rn(tl.load(peaks + slot), temperature) >= cut:
                    add_to_table(own, table, size, temperature, floor, cut, top, False, BLOCK)
            else:
                whole = add_to_table(own, table, size, temperature, floor, cut, top, True, BLOCK)
                tl.store(wholes + slot, whole)
        else:
            whole = kept_mass(own, size, temperature, top, key_of(floor), BLOCK)
            tl.store(wholes + slot, whole)


@triton.jit
def _part_of(weights, goal, PARTS: tl.constexpr):
    """Return the part in which the running sum of ``weights`` [PARTS] passes ``goal``, and the sum
    of those before it."""
    part = tl.sum((tl.cumsum(weights, 0) <= goal).to(tl.int32), 0)
    return part, tl.sum(tl.where(tl.arange(0, PARTS) < part, weights, 0), 0)


@triton.jit
def _token_at(
    logits, vocabulary, width, part, temperature, top, threshold, goal, BLOCK: tl.constexpr
):
    """Return the token at which the running sum of the kept weights of ``part`` passes ``goal``."""
    first = part * width
    size = tl.minimum(width, vocabulary - first)
    return first + place_of(logits + first, size, temperature, top, threshold, goal, BLOCK)


@triton.jit
def _settle(
    values,
    counts,
    heavier,
    width,
    wanted,
    top_k,
    top_p,
    vocabulary,
    floor,
    top,
    PARTS: tl.constexpr,
):
    """Return the threshold's key, and the weight that each part has at or above it. ``counts``
    [PARTS]: of the candidates; ``heavier`` [PARTS]: the weight of those above the candidates.
    ``wanted``: how much of the candidates' weight top-p keeps, where there is no top-k."""
    threshold = key_of(floor)
    if is_limited(top_k, vocabulary):
        if tl.sum(counts, 0) >= top_k:
            few = top_k.to(tl.int64)
            threshold = threshold_of_parts(values, counts, width, few, top, False, PARTS)
        masses = masses_of_parts(values, counts, width, top, threshold, PARTS)
        wanted = share_of(top_p, tl.sum(masses, 0))
    if top_p < 1.0:
        found = threshold_of_parts(values, counts, width, wanted, top, True, PARTS)
        threshold = tl.maximum(threshold, found)
    return threshold, heavier + masses_of_parts(values, counts, width, top, threshold, PARTS)


@triton.jit
def _gather_part(
    logits,
    values,
    count_at,
    heavier_at,
    peak,
    cut,
    top,
    temperature,
    begin,
    last,
    vocabulary,
    width,
    BLOCK: tl.constexpr,
):
    """Gather the part's candidates, those in the buckets ``begin`` to ``last``. ``peak``: the
    part's, scaled."""
    if (peak >= cut) & (bucket_of(peak, top) <= last):
        first = tl.program_id(1) * width
        size = tl.minimum(width, vocabulary - first)
        count, above = gather_buckets(
            *(logits + first, values + first, size, temperature, cut, top, begin, last, BLOCK)
        )
        tl.store(count_at, count)
        tl.store(heavier_at, above)
    else:
        tl.store(count_at, 0)
        tl.store(heavier_at, 0)


@triton.jit
def _pick_plain(
    logits,
    tokens,
    weights,
    floor,
    top,
    temperature,
    seed,
    position,
    vocabulary,
    width,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw the token if it lies in the part. ``weights`` [PARTS]: of all parts."""
    goal = goal_of(uniform(seed, position), tl.sum(weights, 0))
    part, passed = _part_of(weights, goal, PARTS)
    if part == tl.program_id(1):
        threshold = key_of(floor)
        token = _token_at(
            *(logits, vocabulary, width, part, temperature, top, threshold, goal - passed, BLOCK)
        )
        tl.store(tokens, token)


@triton.jit
def _pick_filtered(
    logits,
    values,
    ids,
    tables,
    arrivals,
    counts,
    heavier,
    tokens,
    peak,
    whole,
    cuts,
    floor,
    top,
    temperature,
    top_k,
    top_p,
    seed,
    position,
    vocabulary,
    width,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gather the part's candidates; the last program of a row draws its token. The pointers are the
    row's own. ``peak``: the part's, scaled."""
    part, parts = tl.program_id(1), tl.arange(0, PARTS)
    cut, limited = tl.load(cuts), is_limited(top_k, vocabulary)
    wanted = tl.where(limited, top_k.to(tl.int64), share_of(top_p, whole))
    bucket, before, total = find_bucket(tables, wanted)
    if (cut > floor) & (total < wanted):
        if part == 0:
            count, _, whole = gather_candidates(
                logits, values, ids, vocabulary, temperature, floor, floor, top, BLOCK
            )
            fraction = uniform(seed, position)
            drawn = filtered_place(
                values, count, whole, top_k, top_p, vocabulary, floor, top, fraction, BLOCK
            )
            tl.store(tokens, tl.load(ids + drawn))
    else:
        # Top-p is a share of what top-k leaves, so all of that is gathered.
        begin = tl.where(limited, 0, bucket)
        _gather_part(
            *(logits, values, counts + part, heavier + part, peak, cut, top, temperature),
            *(begin, bucket, vocabulary, width, BLOCK),
        )
        tl.debug_barrier()  # all threads have written before one of them counts
        if tl.atomic_add(arrivals, 1, sem="acq_rel") == PARTS - 1:
            threshold, weights = _settle(
                *(values, tl.load(counts + parts), tl.load(heavier + parts), width),
                *(wanted - before, top_k, top_p, vocabulary, floor, top, PARTS),
            )
            goal = goal_of(uniform(seed, position), tl.sum(weights, 0))
            at, passed = _part_of(weights, goal, PARTS)
            token = _token_at(
                *(logits, vocabulary, width, at, temperature, top, threshold, goal - passed, BLOCK)
            )
            tl.store(tokens, token)


@triton.jit
def _pick(
    logits,
    temperatures,
    log_min_ps,
    top_ks,
    top_ps,
    seeds,
    positions,
    peaks,
    leaders,
    values,
    ids,
    tables,
    arrivals,
    cuts,
    wholes,
    counts,
    heavier,
    tokens,
    bests,
    rows,
    stride,
    vocabulary,
    width,
    HAS_ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(rows + place) if HAS_ROWS else place
    temperature = tl.load(temperatures + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    best, token = _row_peak(peaks, leaders, place, vocabulary, PARTS)
    tl.store(bests + row, best, mask=part == 0)
    if (temperature > 0) & (best - best == 0):
        logits, slots = logits + place * stride, place * PARTS
        top = tl.div_rn(best, temperature)
        floor = top + tl.load(log_min_ps + row)
        seed, position = tl.load(seeds + row), tl.load(positions + row)
        weights = tl.load(wholes + slots + tl.arange(0, PARTS))
        if is_filtered(top_k, top_p, vocabulary):
            start = place * vocabulary
            peak = tl.div_rn(tl.load(peaks + slots + part), temperature)
            _pick_filtered(
                *(logits, values + start, ids + start, tables + place * COPIES * BUCKETS),
                *(arrivals + place, counts + slots, heavier + slots, tokens + row, peak),
                *(tl.sum(weights, 0), cuts + place, floor, top, temperature, top_k, top_p),
                *(seed, position, vocabulary, width, PARTS, BLOCK),
            )
        else:
            _pick_plain(
                *(logits, tokens + row, weights, floor, top, temperature, seed, position),
                *(vocabulary, width, PARTS, BLOCK),
            )
    else:
        tl.store(tokens + row, token, mask=part == 0)


def sample_in_parts(
    logits: Tensor,
    params: SamplingTensors,
    positions: Tensor,
    values: Tensor,
    ids: Tensor,
    tokens: Tensor,
    bests: Tensor,
    rows: Tensor | None,
) -> None:
    """Do what ``engine.gpu.kernels.sampling.sample`` does. ``values`` float32 and ``ids`` int32
    [rows, vocabulary] are overwritten."""
    count, vocabulary = logits.shape

    def new(columns: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, columns, dtype=dtype, device=logits.device)

    peaks, leaders = new(PARTS, torch.float32), new(PARTS, torch.int32)
    tables, arrivals = new(COPIES.value * BUCKETS.value, torch.int64), new(1, torch.int32)
    cuts, wholes = new(1, torch.float32), new(PARTS, torch.int64)
    counts, heavier = new(PARTS, torch.int32), new(PARTS, torch.int64)
    width = triton.cdiv(vocabulary, PARTS)
    block = min(_BLOCK, max(16, triton.next_power_of_2(width)))
    sizes = (row_stride(logits), vocabulary, width)
    filters = (params.temperature, params.log_min_p, params.top_k, params.top_p)
    grid = (count, PARTS)
    _find_peaks[grid](
        logits, peaks, leaders, tables, arrivals, *sizes, PARTS=PARTS, BLOCK=block, num_warps=4
    )
    _weigh_parts[grid](
        *(logits, *filters, peaks, leaders, tables, cuts, wholes, rows, *sizes),
        HAS_ROWS=rows is not None,
        PARTS=PARTS,
        BLOCK=block,
        num_warps=4,
    )
    _pick[grid](
        *(logits, *filters, params.seeds, positions, peaks, leaders, values, ids),
        *(tables, arrivals, cuts, wholes, counts, heavier, tokens, bests, rows, *sizes),
        HAS_ROWS=rows is not None,
        PARTS=PARTS,
        BLOCK=min(_PICK_BLOCK, block),
        num_warps=4,
    )
