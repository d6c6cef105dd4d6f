"""Building blocks of the decoders: linear maps, normalisations, activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

# Weights with fewer elements are faster unpacked: oneDNN's call overhead exceeds what the packed
# layout saves (measured on AVX2 at 1 to 64 rows; bench/engine_cpu.py measures the whole step).
PACK_FROM_ELEMENTS = 1 << 19


class Linear:
    """``x @ weight.T + bias`` by plain matrix products, for a weight [out, in].

    On a CPU a weight with more outputs than inputs is kept as [in, out]: a product with a single
    row then streams it a quarter faster, and others lose nothing.
    """

    __slots__ = ("_bias", "_transposed")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        reorders = weight.device.type == "cpu" and weight.shape[0] > weight.shape[1]
        self._transposed = weight.t().contiguous() if reorders else weight.t()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if self._bias is None:
            return torch.mm(x, self._transposed)
        return torch.addmm(self._bias, x, self._transposed)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual + self(x)``; ``residual`` [rows, out] may be overwritten."""
        residual.addmm_(x, self._transposed)
        return residual if self._bias is None else residual.add_(self._bias)


class PackedLinear:
    """The same map from oneDNN's blocked layout, which several threads stream up to twice as fast
    and batches of 2 to 64 rows use up to three times as fast."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self._weight, self._bias, "add"
        )
        return out


AnyLinear = Linear | PackedLinear


def packs(weight: Tensor) -> bool:
    """True if a packed copy of ``weight`` is supported on this machine and pays off."""
    if weight.device.type != "cpu" or weight.numel() < PACK_FROM_ELEMENTS:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return True


def make_linear(weight: Tensor, bias: Tensor | None = None) -> AnyLinear:
    """Return the faster of the two for ``weight`` [out, in]. It may hold a packed copy, so the
    caller should free the original."""
    return PackedLinear(weight, bias) if packs(weight) else Linear(weight, bias)


def make_feed_forward(weight: Tensor, bias: Tensor | None = None) -> AnyLinear:
    """Do the same for the feed-forward's weights, which are most of a model's. With a single thread
    in float32 they are not packed: that would slow a single row by 1.4 and speed up a batch only by
    1.2."""
    if weight.dtype == torch.float32 and torch.get_num_threads() == 1:
        return Linear(weight, bias)
    return make_linear(weight, bias)


class RMSNorm:
    """Root mean square layer normalisation (arXiv 1910.07467) over the last dimension.

    ``weight`` [..., size] multiplies the normalised elements, broadcast over what is before.
    """

    __slots__ = ("_eps", "_eps_tensor", "_inverse_size", "_size", "_weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._size = weight.shape[-1]
        self._inverse_size = 1 / self._size
        self._eps = eps
        self._eps_tensor = torch.tensor(eps, dtype=weight.dtype, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            # Computes in float32 inside, and is one kernel on a GPU.
            return functional.rms_norm(x, (self._size,), None, self._eps).mul_(self._weight)
        # On a CPU torch composes rms_norm of ten operations; these five do the same.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps_tensor, norm, norm, value=self._inverse_size).rsqrt_()
        return (x * scale).mul_(self._weight)


class NormedAddition:
    """Adds a linear map to the residual stream, its result normalised by ``norm``, if there is one,
    and multiplied."""

    __slots__ = ("_linear", "_multiplier", "_norm")

    def __init__(self, linear: AnyLinear, norm: RMSNorm | None, multiplier: float) -> None:
        self._linear = linear
        self._norm = norm
        self._multiplier = multiplier

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual`` [rows, out] may be overwritten."""
        out = self._linear(x)
        if self._norm is not None:
            out = self._norm(out)
        return residual.add_(out, alpha=self._multiplier)


class LayerNorm:
    """Layer normalisation (arXiv 1607.06450) over the last dimension."""

    __slots__ = ("_bias", "_eps", "_shape", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self._weight = weight
        self._bias = bias
        self._shape = tuple(weight.shape)
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self._shape, self._weight, self._bias, self._eps)


def _silu(x: Tensor) -> Tensor:
    return functional.silu(x, inplace=True)


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


# Each may overwrite its argument.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": _silu,
    "gelu": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": torch.relu_,
}
