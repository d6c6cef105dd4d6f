"""Attention of prompts, or their first parts, whose whole context is in the batch: by torch, which
calls cuDNN's kernels. Nothing is read from the cache.

A context that begins in the batch is square: row i sees rows 0 to i. So rows of zeros after it
change nothing, and lengths are rounded up to few sizes, for each of which cuDNN makes a plan once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.gpu.availability import KernelsUnavailableError

# Shorter ones take less time than launching each of them separately.
FEWEST_ROWS = 512
_STEP = 256
# Between two powers of two there are at most so many sizes.
_SIZES_AN_OCTAVE = 8


def padded_rows(rows: int) -> int:
    """Return the size that a context of ``rows`` is padded to: at most an eighth more, or 255."""
    step = max(_STEP, (1 << (rows - 1).bit_length()) // (2 * _SIZES_AN_OCTAVE))
    return -(-rows // step) * step


def sizes(fewest: int, most: int) -> Iterator[int]:
    """Yield all sizes that contexts of so many rows are padded to."""
    size = padded_rows(fewest)
    while size < most + _STEP and size <= padded_rows(most):
        yield size
        size = padded_rows(size + 1)


@dataclass(frozen=True, slots=True)
class FreshAttention:
    """``fewest``: the shortest contexts that it is used for."""

    backend: SDPBackend = SDPBackend.CUDNN_ATTENTION
    fewest: int = FEWEST_ROWS

    def fits(self, rows: int, window: int | None) -> bool:
        return rows >= self.fewest and (window is None or rows <= window)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, out: Tensor
    ) -> None:
        """Attend from each row to those before it and itself. ``query`` [rows, heads, head_dim];
        ``key`` and ``value`` [rows, kv_heads, head_dim]; ``out`` [rows, heads * head_dim]."""
        rows = query.shape[0]
        padding = padded_rows(rows) - rows
        # Not the rows that follow in the batch: those are another sequence's.
        parts = [query, key, value]
        if padding:
            parts = [functional.pad(part, (0, 0, 0, 0, 0, padding)) for part in parts]
        # [1, heads, rows, head_dim] as views.
        q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in parts)
        with sdpa_kernel(self.backend):
            found = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        out.view(query.shape).copy_(found[0, :, :rows].transpose(0, 1))

    def prepare(
        self,
        most: int,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Attend once in every size up to ``most`` rows, so that no request waits for a plan."""
        for size in sizes(self.fewest, most) if most >= self.fewest else ():
            query = torch.zeros(size, heads, head_dim, dtype=dtype, device=device)
            keys = torch.zeros(size, kv_heads, head_dim, dtype=dtype, device=device)
            out = torch.empty(size, heads * head_dim, dtype=dtype, device=device)
            self(query, keys, keys, scale=1.0, out=out)


def require_cudnn(
    device: torch.device, *, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    """Raise KernelsUnavailableError if cuDNN's attention cannot run with these heads."""
    if device.type != "cuda":
        raise KernelsUnavailableError("cuDNN's attention needs an NVIDIA GPU")
    if dtype.itemsize != 2:
        raise KernelsUnavailableError(
            f"cuDNN's attention computes in 16 bits, and the model is in "
            f"{str(dtype).removeprefix('torch.')}; --dtype bfloat16 would be"
        )
    try:
        FreshAttention().prepare(
            FEWEST_ROWS,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            dtype=dtype,
            device=device,
        )
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise KernelsUnavailableError(
            f"cuDNN's attention cannot run here with heads of {head_dim} ({reason})"
        ) from error
