"""Which experts each token takes (arXiv 2101.03961; 2401.04088), and tokens in order of them."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch, padded, row_stride, warps_for


@triton.jit
def _route(
    scores,
    chosen,
    weights,
    stride,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
    TOP_K: tl.constexpr,
    TOP_BLOCK: tl.constexpr,
    RENORMALISED: tl.constexpr,
    EARLY: tl.constexpr,
):
    await_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, BLOCK)
    places = tl.arange(0, TOP_BLOCK)
    values = tl.load(scores + row * stride + experts, mask=experts < COUNT, other=float("-inf"))
    values = values.to(tl.float32)
    peak = tl.max(values, 0)
    mass = tl.sum(tl.exp(values - peak), 0)
    found = tl.zeros([TOP_BLOCK], tl.int32)
    parts = tl.zeros([TOP_BLOCK], tl.float32)
    for place in range(TOP_K):
        top = tl.max(values, 0)
        # Within the experts also where scores are not numbers.
        expert = tl.minimum(tl.argmax(values, 0), COUNT - 1)
        found = tl.where(places == place, expert, found)
        parts = tl.where(places == place, tl.exp(top - peak) / mass, parts)
        values = tl.where(experts == expert, float("-inf"), values)
    if RENORMALISED:
        parts = parts / tl.sum(parts, 0)
    tl.store(chosen + row * TOP_K + places, found, mask=places < TOP_K)
    tl.store(weights + row * TOP_K + places, parts, mask=places < TOP_K)


def choose_experts(scores: Tensor, top_k: int, *, renormalised: bool) -> tuple[Tensor, Tensor]:
    """Return each row's experts, int32 [rows, top_k], and their weights, float32, for the router's
    ``scores`` [rows, experts]: the softmax of them, of the chosen ones alone if
    ``renormalised``."""
    rows, count = scores.shape
    chosen = torch.empty(rows, top_k, dtype=torch.int32, device=scores.device)
    weights = torch.empty(rows, top_k, dtype=torch.float32, device=scores.device)
    block = padded(count)
    _route[(rows,)](
        scores,
        chosen,
        weights,
        row_stride(scores),
        COUNT=count,
        BLOCK=block,
        TOP_K=top_k,
        TOP_BLOCK=padded(top_k),
        RENORMALISED=renormalised,
        **early_launch(),
        num_warps=min(4, warps_for(block)),
    )
    return chosen, weights


class Groups(NamedTuple):
    """Pairs of a row and one of its experts, in order of experts. ``order`` int32 [pairs]: row *
    top_k + place. ``begins`` int32 [experts + 1]: where an expert's pairs begin. ``tile_ends``
    int32 [experts]: how many tiles of ``rows_per_tile`` pairs all experts up to it have. ``tiles``:
    at most so many in all."""

    order: Tensor
    begins: Tensor
    tile_ends: Tensor
    rows_per_tile: int
    tiles: int


def group(chosen: Tensor, count: int, rows_per_tile: int) -> Groups:
    """Sort the pairs of ``chosen`` [rows, top_k] by expert, of ``count``. Without waiting for the
    device."""
    flat = chosen.flatten()
    experts, order = flat.sort(stable=True)
    bounds = torch.arange(count + 1, dtype=torch.int32, device=flat.device)
    begins = torch.searchsorted(experts, bounds, out_int32=True)
    tiles = (begins.diff() + rows_per_tile - 1).div(rows_per_tile, rounding_mode="floor")
    return Groups(
        order.int(),
        begins,
        tiles.cumsum(0, dtype=torch.int32),
        rows_per_tile,
        min(flat.numel(), flat.numel() // rows_per_tile + count),
    )
