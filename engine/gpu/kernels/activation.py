"""The gate of a gated feed-forward (arXiv 2002.05202): ``activation(gate) * up``."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch, row_stride

_BLOCK = 1024


@triton.jit
def activated(gate, NAME: tl.constexpr):
    """Return the activation of float32 values."""
    if NAME == "silu":
        return gate / (1.0 + tl.exp(-gate))
    elif NAME == "gelu":
        return 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    elif NAME == "gelu_tanh":
        # 0.5 * (1 + tanh(y)) is the sigmoid of 2y.
        inside = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        return gate / (1.0 + tl.exp(-inside))
    else:
        return tl.maximum(gate, 0.0)


@triton.jit
def _gated(
    gate_up,
    out,
    stride,
    out_stride,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    NAME: tl.constexpr,
    EARLY: tl.constexpr,
):
    await_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = places < INNER
    gates = gate_up + row * stride + places
    gate = tl.load(gates, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(gates + INNER, mask=exists, other=0.0).to(tl.float32)
    gate = activated(gate, NAME)
    tl.store(out + row * out_stride + places, (gate * up).to(out.dtype.element_ty), mask=exists)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """Return the gated values [rows, inner] of ``gate_up`` [rows, 2 * inner], gate first, in its
    dtype; ``activation`` is one of ``engine.model.layers.ACTIVATIONS``."""
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, inner, dtype=gate_up.dtype, device=gate_up.device)
    block = min(_BLOCK, triton.next_power_of_2(inner))
    _gated[(rows, triton.cdiv(inner, block))](
        gate_up,
        out,
        row_stride(gate_up),
        out.stride(0),
        INNER=inner,
        BLOCK=block,
        NAME=activation,
        **early_launch(),
        num_warps=4,
    )
    return out
