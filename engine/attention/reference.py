"""Paged attention in plain torch: correct on any device, and used on CPUs.

The query heads of a group become query rows of their key head, so keys and values are never
repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.cache import PagedKVCache
from engine.attention.layout import DecodeGroup, Plans, PrefillTile


def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cache: PagedKVCache,
    layer: int,
    plans: Plans,
    window: int | None,
    scale: float,
) -> Tensor:
    """Store this step's keys and values, then attend. Returns [tokens, heads * head_dim].

    ``query`` [tokens, heads, head_dim], ``key`` and ``value`` [tokens, kv_heads, head_dim], in
    the cache's dtype; token i attends to its sequence up to itself, at most ``window`` tokens.
    """
    stored = cache.store(layer, plans.slots, key, value)
    if cache.scales(layer) is not None:
        # A prompt must attend to the same values that later tokens read from the cache.
        key, value = stored[:, : cache.num_kv_heads], stored[:, cache.num_kv_heads :]
    tokens, heads, head_dim = query.shape
    grouped = query.view(tokens, cache.num_kv_heads, -1, head_dim)
    plan = plans.by_window[window]
    if not plan.prefill and len(plan.decode) == 1:
        out = _decode(grouped, stored, cache, layer, plan.decode[0], scale)
        return out.reshape(tokens, heads * head_dim)
    result = torch.empty_like(grouped, memory_format=torch.contiguous_format)
    for group in plan.decode:
        rows = slice(group.first, group.last)
        result[rows] = _decode(grouped[rows], stored[rows], cache, layer, group, scale)
    for tile in plan.prefill:
        part = grouped[tile.first : tile.last]
        keys, values = _tile_context(key, value, cache, layer, tile)
        result[tile.first : tile.last] = _prefill(part, keys, values, tile.mask, scale)
    return result.view(tokens, heads * head_dim)


def _decode(
    query: Tensor,
    stored: Tensor,
    cache: PagedKVCache,
    layer: int,
    group: DecodeGroup,
    scale: float,
) -> Tensor:
    """Attend. ``query`` and result: [sequences, kv_heads, query heads of each, head_dim]."""
    if group.mirror is not None:
        keys, values = cache.mirrored(layer, group.mirror, group.rows, stored)
    elif group.rows is not None:
        keys, values = cache.gather(layer, group.rows, query.shape[0])
    else:
        raise ValueError("a decode group with neither rows to gather nor a mirror")
    return scaled_dot_product_attention(
        query,
        keys[:, :, : group.length],
        values[:, :, : group.length],
        attn_mask=group.mask,
        scale=scale,
    )


def _tile_context(
    key: Tensor, value: Tensor, cache: PagedKVCache, layer: int, tile: PrefillTile
) -> tuple[Tensor, Tensor]:
    """Return keys and values [kv_heads, keys, head_dim] that the tile's tokens may attend to."""
    end = tile.first_key + tile.num_keys
    if tile.rows is None:
        return (
            key[tile.first_key : end].transpose(0, 1),
            value[tile.first_key : end].transpose(0, 1),
        )
    keys, values = cache.gather(layer, tile.rows, 1)
    return keys[0, :, tile.first_key : end], values[0, :, tile.first_key : end]


def _prefill(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Attend. ``query`` and result: [tokens, kv_heads, query heads of each, head_dim]. Key heads
    are the batch dimension; a key head's queries share its keys through a view of stride zero."""
    groups = query.shape[2]
    out = scaled_dot_product_attention(
        query.permute(1, 2, 0, 3),
        keys.unsqueeze(1).expand(-1, groups, -1, -1),
        values.unsqueeze(1).expand(-1, groups, -1, -1),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3)
