"""Residual addition and RMS normalisation (arXiv 1910.07467) in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch, row_stride, warps_for


@triton.jit
def _add_rms_norm(
    x,
    residual,
    weight,
    out,
    x_stride,
    residual_stride,
    out_stride,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    exists = places < SIZE
    gain = tl.load(weight + places, mask=exists, other=0.0).to(tl.float32)
    await_inputs(EARLY)
    values = tl.load(x + row * x_stride + places, mask=exists, other=0.0).to(tl.float32)
    if ADDS:
        rest = residual + row * residual_stride + places
        values = values + tl.load(rest, mask=exists, other=0.0).to(tl.float32)
        # Normalise the rounded sum, which is what is stored: recomputing from the residual must
        # give the same result.
        rounded = values.to(residual.dtype.element_ty)
        tl.store(rest, rounded, mask=exists)
        values = rounded.to(tl.float32)
    mean_square = tl.sum(values * values, 0) / SIZE
    scale = 1.0 / tl.sqrt(mean_square + eps)
    result = (values * scale * gain).to(out.dtype.element_ty)
    tl.store(out + row * out_stride + places, result, mask=exists)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    rows, size = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(size)
    _add_rms_norm[(rows,)](
        x,
        residual,
        weight,
        out,
        row_stride(x),
        0 if residual is None else row_stride(residual),
        out.stride(0),
        eps,
        SIZE=size,
        BLOCK=block,
        ADDS=residual is not None,
        **early_launch(),
        num_warps=warps_for(block),
    )
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise ``x`` [rows, size] over its rows, times ``weight`` [size], in x's dtype."""
    return _launch(x, None, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add ``x`` [rows, size] to ``residual`` in place and return the normalised sum. Each keeps its
    dtype; the sum is rounded to the residual's."""
    return _launch(x, residual, weight, eps)
