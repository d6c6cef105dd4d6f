"""Root mean square norms of transformers' models, each by one call of our compiled code.

transformers has a class for each family. Which of them compute the usual norm is found by running
them, not by their names.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from engine.cpu.library import Library

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
_ROWS = 3


class CompiledNorm(nn.Module):
    """``x / sqrt(mean(x ** 2) + eps) * scale`` over the last dimension, in float32."""

    def __init__(self, weight: nn.Parameter, scale: Tensor, eps: float, library: Library) -> None:
        """``weight``: the parameter that ``scale`` is computed from."""
        super().__init__()
        self.weight = weight
        self._scale = scale.float().contiguous()
        self._size = len(scale)
        self._eps = eps
        self._rms_norm = library.rms_norm

    def forward(self, x: Tensor) -> Tensor:
        rows = x.float().contiguous()
        if rows.shape[-1] != self._size:
            raise ValueError(f"a norm of {self._size} elements is given {rows.shape[-1]}")
        out = torch.empty_like(rows)
        self._rms_norm(
            rows.data_ptr(),
            self._scale.data_ptr(),
            rows.numel() // self._size,
            self._size,
            self._eps,
            out.data_ptr(),
        )
        return out.to(x.dtype)


def compiled_norm(module: Any, library: Library) -> CompiledNorm | None:
    """Return what computes the same as ``module``; None if nothing does. Of models in float32."""
    eps = next((getattr(module, name) for name in _EPS_NAMES if hasattr(module, name)), None)
    weight = getattr(module, "weight", None)
    if (
        not isinstance(eps, float)
        or not isinstance(weight, nn.Parameter)
        or weight.dim() != 1
        or weight.dtype != torch.float32
        or weight.shape[0] % library.lanes
        or [name for name, _ in module.named_parameters()] != ["weight"]
        or list(module.children())
        or list(module.buffers())
        or len(inspect.signature(module.forward).parameters) != 1
    ):
        return None
    x = torch.randn(_ROWS, len(weight), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        try:
            expected = module(x)
        except Exception:  # it needs something else than rows
            return None
        if not isinstance(expected, Tensor) or expected.shape != x.shape:
            return None
        for scale in (weight.data, weight.data + 1):
            found = CompiledNorm(weight, scale, eps, library)
            if torch.allclose(found(x), expected, rtol=1e-5, atol=1e-6):
                return found
    return None
