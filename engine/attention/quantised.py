"""A KV cache of 8-bit floats: half the memory of bfloat16, so twice as many contexts fit.

Format e4m3 of arXiv 2209.05433 (4 bits of exponent, 3 of mantissa, up to 448). Each head's keys and
values are divided by a separate scale before they are rounded; scales are 1 unless set.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.mirror import MirrorPart

E4M3 = torch.float8_e4m3fn
MAX_E4M3 = 448.0


class QuantisedKVCache(PagedKVCache):
    """See ``PagedKVCache``; reads return ``dtype``."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # As bytes: torch cannot copy and gather 8-bit floats on every device.
        super().__init__(
            num_layers=num_layers,
            num_blocks=num_blocks,
            num_kv_heads=num_kv_heads,
            block_size=block_size,
            head_dim=head_dim,
            dtype=torch.uint8,
            device=device,
        )
        self._dtype = dtype
        self._scales = torch.ones(num_layers, 2, num_kv_heads, device=device)

    def layer(self, layer: int) -> Tensor:
        return super().layer(layer).view(E4M3)

    def scales(self, layer: int) -> Tensor:
        return self._scales[layer]

    def set_scales(self, layer: int, scales: Tensor) -> None:
        """Set the ``scales`` [2, kv_heads] of keys and values; they must be positive. To be called
        before anything is stored."""
        self._scales[layer] = scales

    def store(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return keys and values as stored: rounded to 8 bits and back."""
        both = torch.cat((keys, values), dim=1).float()
        scales = self._scales[layer].view(-1, 1)
        narrow = (both / scales).clamp_(-MAX_E4M3, MAX_E4M3).to(E4M3)
        self._slots[layer].index_copy_(0, slots, narrow.view(torch.uint8).view(-1, self.head_dim))
        return (narrow.float() * scales).to(self._dtype)

    def gather(self, layer: int, rows: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
        keys, values = super().gather(layer, rows, sequences)
        scales = self._scales[layer].view(2, 1, -1, 1, 1)
        return (
            (keys.view(E4M3).float() * scales[0]).to(self._dtype),
            (values.view(E4M3).float() * scales[1]).to(self._dtype),
        )

    def layer_pointer(self, layer: int) -> int:
        raise ValueError("code outside torch does not read a quantised KV cache")

    def mirrored(
        self, layer: int, part: MirrorPart, rows: Tensor | None, stored: Tensor
    ) -> tuple[Tensor, Tensor]:
        raise ValueError("a quantised KV cache has no mirror")
