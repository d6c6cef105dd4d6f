"""A small 8-bit cache whose heads have different scales."""

from __future__ import annotations

import torch

from engine.attention.quantised import QuantisedKVCache


def scaled_cache(device: torch.device) -> QuantisedKVCache:
    cache = QuantisedKVCache(
        num_layers=1,
        num_blocks=3,
        num_kv_heads=2,
        block_size=8,
        head_dim=16,
        dtype=torch.float32,
        device=device,
    )
    cache.set_scales(0, torch.tensor([[0.01, 1.0], [0.5, 3.0]]))
    return cache
