"""Samples the next token of every row, on the device and without a sort.

It implements ``engine.sampling.sampler.draw``: temperature, min-p, top-k, top-p, then the token at
a quantile, in order of token ids. Each filter keeps the tokens at or above one of the row's values,
so the filters reduce to one threshold, the highest of three, and equal values are kept or dropped
together, as they are there. A threshold is the largest value v such that enough lies at or above v:
enough tokens for top-k, enough probability for top-p. Both decrease as v grows, so a bisection
finds it. The bisection runs over integers that order as floats do and always moves to values that
occur, so that it ends at the exact one.

Probabilities are summed as integer multiples of 2^-44 of the likeliest token's. Such sums are exact
in any order, so a row gets the same token in any launch, and several programs may share a row
(``engine.gpu.kernels.sampling_parts``). Less likely tokens are never drawn (the
reference might, once in 10^13 draws).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.drawing import (
    NEAR,
    filtered_place,
    gather_candidates,
    is_filtered,
    key_of,
    lacks,
    largest,
    quantile,
)
from engine.gpu.kernels.launch import row_stride
from engine.gpu.kernels.philox import uniform
from engine.gpu.kernels.sampling_parts import PARTS, sample_in_parts
from engine.sampling.device import SamplingTensors

_BLOCK = 2048
_FEWEST_A_PART = 256


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
    values, ids = values + place * vocabulary, ids + place * vocabulary
    row = tl.load(rows + place) if HAS_ROWS else place
    best, token = largest(logits, vocabulary, BLOCK)
    tl.store(bests + row, best)
    temperature = tl.load(temperatures + row)
    if (temperature > 0) & (best - best == 0):
        top = tl.div_rn(best, temperature)
        top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
        floor = top + tl.load(log_min_ps + row)
        fraction = uniform(tl.load(seeds + row), tl.load(positions + row))
        if is_filtered(top_k, top_p, vocabulary):
            cut = tl.maximum(floor, top - NEAR)
            count, near, whole = gather_candidates(
                logits, values, ids, vocabulary, temperature, floor, cut, top, BLOCK
            )
            if (cut > floor) & lacks(count, near, whole, top_k, top_p, vocabulary):
                tl.debug_barrier()
                count, near, whole = gather_candidates(
                    logits, values, ids, vocabulary, temperature, floor, floor, top, BLOCK
                )
            drawn = filtered_place(
                values, count, whole, top_k, top_p, vocabulary, floor, top, fraction, BLOCK
            )
            token = tl.load(ids + drawn)
        else:
            token = quantile(logits, vocabulary, temperature, top, key_of(floor), fraction, BLOCK)
    tl.store(tokens + row, token)


def sample(
    logits: Tensor,
    params: SamplingTensors,
    positions: Tensor,
    *,
    rows: Tensor | None = None,
    tokens: Tensor | None = None,
    bests: Tensor | None = None,
    in_parts: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return int32 and float32 [rows]: a token for each row of ``logits`` [rows, vocabulary],
    float32 or narrower, and the row's highest logit; if that is not finite, the token is
    meaningless.

    ``positions`` (integers [rows]): the position in its sequence that each token will have.
    ``tokens`` and ``bests``: where to write the results, if given. ``rows`` (int64 [rows]): the
    row of ``params``, ``positions``, ``tokens`` and ``bests``, which must be given then, that each
    row of ``logits`` belongs to. ``in_parts``: whether several programs share a row, with the same
    result; by default unless the vocabulary is small.
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
    where = (values, ids, tokens, bests, rows)
    if in_parts is None:
        in_parts = vocabulary >= PARTS * _FEWEST_A_PART
    if in_parts:
        sample_in_parts(logits, params, positions, *where)
        return tokens, bests
    _sample[(count,)](
        logits,
        params.temperature,
        params.log_min_p,
        params.top_k,
        params.top_p,
        params.seeds,
        positions,
        *where,
        row_stride(logits),
        vocabulary,
        HAS_ROWS=rows is not None,
        BLOCK=min(_BLOCK, max(16, triton.next_power_of_2(vocabulary))),
        num_warps=8,
    )
    return tokens, bests
