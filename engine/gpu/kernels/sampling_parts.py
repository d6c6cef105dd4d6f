"""Samples a few rows with several programs for each, which divide the vocabulary.

One program per row leaves most of a device idle when there are few rows, and then takes longer than
small layers do. Parts pass on maxima and sums of whole numbers, which do not depend on how the row
was divided, so the tokens are those of ``engine.gpu.kernels.sampling``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.drawing import (
    NEAR,
    filtered_place,
    gather_candidates,
    goal_of,
    is_filtered,
    kept_mass,
    key_of,
    lacks,
    largest,
    place_of,
)
from engine.gpu.kernels.launch import row_stride
from engine.gpu.kernels.philox import uniform
from engine.sampling.device import SamplingTensors

PARTS = 32
_BLOCK = 2048


@triton.jit
def _find_peaks(
    logits, peaks, leaders, stride, vocabulary, width, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Find each part's highest logit, and the first token that has it."""
    place = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * width
    count = tl.minimum(width, vocabulary - first)
    best, token = largest(logits + place * stride + first, count, BLOCK)
    slot = place * PARTS + tl.program_id(1)
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
    values,
    ids,
    counts,
    nears,
    wholes,
    rows,
    stride,
    vocabulary,
    width,
    HAS_ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum each part's weights, and gather its candidates if the row is filtered: in ``values`` and
    ``ids``, from the part's first place on."""
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place) if HAS_ROWS else place
    best, _ = _row_peak(peaks, leaders, place, vocabulary, PARTS)
    temperature = tl.load(temperatures + row)
    if (temperature > 0) & (best - best == 0):
        first = tl.program_id(1) * width
        size = tl.minimum(width, vocabulary - first)
        own = logits + place * stride + first
        top = tl.div_rn(best, temperature)
        floor = top + tl.load(log_min_ps + row)
        slot = place * PARTS + tl.program_id(1)
        if is_filtered(tl.load(top_ks + row), tl.load(top_ps + row), vocabulary):
            start = place * vocabulary + first
            cut = tl.maximum(floor, top - NEAR)
            count, near, whole = gather_candidates(
                own, values + start, ids + start, size, temperature, floor, cut, top, BLOCK
            )
            tl.store(counts + slot, count)
            tl.store(nears + slot, near)
            tl.store(wholes + slot, whole)
        else:
            whole = kept_mass(own, size, temperature, top, key_of(floor), BLOCK)
            tl.store(wholes + slot, whole)


@triton.jit
def _join(values, ids, counts, width, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Move the parts' candidates together, to the first places."""
    target = tl.load(counts)
    for part in range(1, PARTS):
        count = tl.load(counts + part)
        start = part * width
        for first in range(0, count, BLOCK):
            places = first + tl.arange(0, BLOCK)
            moves = places < count
            x = tl.load(values + start + places, mask=moves, other=0.0)
            token = tl.load(ids + start + places, mask=moves, other=0)
            tl.debug_barrier()  # other threads may write where one has yet to read
            tl.store(values + target + places, x, mask=moves)
            tl.store(ids + target + places, start + token, mask=moves)
            tl.debug_barrier()
        target += count


@triton.jit
def _token_at(
    logits,
    weights,
    vocabulary,
    width,
    temperature,
    top,
    floor,
    goal,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the token at which the running sum of a row's weights passes ``goal``. ``weights``
    [PARTS]: each part's sum."""
    part = tl.sum((tl.cumsum(weights, 0) <= goal).to(tl.int32), 0)
    before = tl.sum(tl.where(tl.arange(0, PARTS) < part, weights, 0), 0)
    first = part * width
    size = tl.minimum(width, vocabulary - first)
    threshold = key_of(floor)
    return first + place_of(logits + first, size, temperature, top, threshold, goal - before, BLOCK)


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
    counts,
    nears,
    wholes,
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
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place) if HAS_ROWS else place
    best, token = _row_peak(peaks, leaders, place, vocabulary, PARTS)
    tl.store(bests + row, best)
    temperature = tl.load(temperatures + row)
    if (temperature > 0) & (best - best == 0):
        logits, slots = logits + place * stride, place * PARTS + tl.arange(0, PARTS)
        top = tl.div_rn(best, temperature)
        top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
        floor = top + tl.load(log_min_ps + row)
        fraction = uniform(tl.load(seeds + row), tl.load(positions + row))
        weights = tl.load(wholes + slots)
        whole = tl.sum(weights, 0)
        if is_filtered(top_k, top_p, vocabulary):
            values, ids = values + place * vocabulary, ids + place * vocabulary
            count, near = tl.sum(tl.load(counts + slots), 0), tl.sum(tl.load(nears + slots), 0)
            if (top - NEAR > floor) & lacks(count, near, whole, top_k, top_p, vocabulary):
                count, near, whole = gather_candidates(
                    logits, values, ids, vocabulary, temperature, floor, floor, top, BLOCK
                )
            else:
                _join(values, ids, counts + place * PARTS, width, PARTS, BLOCK)
            drawn = filtered_place(
                values, count, whole, top_k, top_p, vocabulary, floor, top, fraction, BLOCK
            )
            token = tl.load(ids + drawn)
        else:
            goal = goal_of(fraction, whole)
            token = _token_at(
                logits, weights, vocabulary, width, temperature, top, floor, goal, PARTS, BLOCK
            )
    tl.store(tokens + row, token)


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

    def new(dtype: torch.dtype) -> Tensor:
        return torch.empty(count, PARTS, dtype=dtype, device=logits.device)

    peaks, leaders = new(torch.float32), new(torch.int32)
    sums = new(torch.int32), new(torch.int64), new(torch.int64)
    width = triton.cdiv(vocabulary, PARTS)
    block = min(_BLOCK, max(16, triton.next_power_of_2(width)))
    sizes = (row_stride(logits), vocabulary, width)
    filters = (params.temperature, params.log_min_p, params.top_k, params.top_p)
    grid = (count, PARTS)
    _find_peaks[grid](logits, peaks, leaders, *sizes, PARTS=PARTS, BLOCK=block, num_warps=4)
    _weigh_parts[grid](
        *(logits, *filters, peaks, leaders, values, ids, *sums, rows, *sizes),
        HAS_ROWS=rows is not None,
        PARTS=PARTS,
        BLOCK=block,
        num_warps=4,
    )
    _pick[(count,)](
        *(logits, *filters, params.seeds, positions, peaks, leaders, values, ids, *sums),
        *(tokens, bests, rows, *sizes),
        HAS_ROWS=rows is not None,
        PARTS=PARTS,
        BLOCK=block,
        num_warps=8,
    )
