"""Paged attention in plain torch: correct on any device, and used on CPUs.

The query heads of a group become query rows of their key head, so keys and values are never
repeated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.architecture.features import AttentionWindow
from engine.attention.cache import PagedKVCache
from engine.attention.layout import DecodeGroup, Plans, PrefillTile

# Queries whose scores are computed at a time where torch's own attention cannot be used.
_SCORED_ROWS = 256


class Scoring(NamedTuple):
    """How scores become weights, other than by a softmax of them. ``softcap``: a score s becomes
    softcap * tanh(s / softcap). ``sinks`` [heads]: a head's sink is one more score in the softmax,
    of a key without a value."""

    softcap: float | None = None
    sinks: Tensor | None = None


def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cache: PagedKVCache,
    layer: int,
    plans: Plans,
    window: AttentionWindow,
    scale: float,
    scoring: Scoring | None = None,
) -> Tensor:
    """Store this step's keys and values, then attend. Returns [tokens, heads * head_dim].

    ``query`` [tokens, heads, head_dim], ``key`` and ``value`` [tokens, kv_heads, head_dim], in
    the cache's dtype; token i attends to those up to itself that ``window`` says.
    ``scoring``: None for a plain softmax.
    """
    stored = cache.store(layer, plans.slots, key, value)
    if cache.scales(layer) is not None:
        # A prompt must attend to the same values that later tokens read from the cache.
        key, value = stored[:, : cache.num_kv_heads], stored[:, cache.num_kv_heads :]
    tokens, heads, head_dim = query.shape
    grouped = query.view(tokens, cache.num_kv_heads, -1, head_dim)
    plan = plans.by_window[window]
    if not plan.prefill and len(plan.decode) == 1:
        out = _decode(grouped, stored, cache, layer, plan.decode[0], scale, scoring)
        return out.reshape(tokens, heads * head_dim)
    result = torch.empty_like(grouped, memory_format=torch.contiguous_format)
    for group in plan.decode:
        rows = slice(group.first, group.last)
        result[rows] = _decode(grouped[rows], stored[rows], cache, layer, group, scale, scoring)
    for tile in plan.prefill:
        part = grouped[tile.first : tile.last]
        keys, values = _tile_context(key, value, cache, layer, tile)
        result[tile.first : tile.last] = _prefill(part, keys, values, tile.mask, scale, scoring)
    return result.view(tokens, heads * head_dim)


def _decode(
    query: Tensor,
    stored: Tensor,
    cache: PagedKVCache,
    layer: int,
    group: DecodeGroup,
    scale: float,
    scoring: Scoring | None,
) -> Tensor:
    """Attend. ``query`` and result: [sequences, kv_heads, query heads of each, head_dim]."""
    if group.mirror is not None:
        keys, values = cache.mirrored(layer, group.mirror, group.rows, stored)
    elif group.rows is not None:
        keys, values = cache.gather(layer, group.rows, query.shape[0])
    else:
        raise ValueError("a decode group with neither rows to gather nor a mirror")
    keys, values = keys[:, :, : group.length], values[:, :, : group.length]
    if scoring is not None:
        return _scored_decode(query, keys, values, group.mask, scale, scoring)
    return scaled_dot_product_attention(query, keys, values, attn_mask=group.mask, scale=scale)


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
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    scoring: Scoring | None,
) -> Tensor:
    """Attend. ``query`` and result: [tokens, kv_heads, query heads of each, head_dim]. Key heads
    are the batch dimension; a key head's queries share its keys through a view of stride zero."""
    if scoring is not None:
        return _scored_prefill(query, keys, values, mask, scale, scoring)
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


def _scored_decode(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float, scoring: Scoring
) -> Tensor:
    """See ``_decode``; ``keys`` and ``values``: [sequences, kv_heads, keys, head_dim]."""
    scores = query @ keys.transpose(-1, -2)
    sinks = None if scoring.sinks is None else scoring.sinks.view(query.shape[1], -1, 1)
    return _weights(scores, mask, scale, scoring.softcap, sinks).to(values.dtype) @ values


def _scored_prefill(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float, scoring: Scoring
) -> Tensor:
    """See ``_prefill``; a limited number of rows at a time, to bound the scores' memory."""
    count, kv_heads, groups, _ = query.shape
    sinks = None if scoring.sinks is None else scoring.sinks.view(kv_heads, groups, 1, 1)
    result = torch.empty_like(query, memory_format=torch.contiguous_format)
    for first in range(0, count, _SCORED_ROWS):
        last = min(first + _SCORED_ROWS, count)
        if mask is None:  # plain causal, as many keys as queries
            part = torch.full((last - first, keys.shape[1]), float("-inf"), device=query.device)
            part.triu_(first + 1)
        else:
            part = mask[first:last]
        rows = query[first:last].permute(1, 2, 0, 3).flatten(1, 2)
        scores = (rows @ keys.transpose(1, 2)).view(kv_heads, groups, last - first, -1)
        weights = _weights(scores, part, scale, scoring.softcap, sinks).to(values.dtype)
        mixed = (weights.flatten(1, 2) @ values).view(kv_heads, groups, last - first, -1)
        result[first:last] = mixed.permute(2, 0, 1, 3)
    return result


def _weights(
    scores: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Return the weights of the keys, in float32. ``mask`` and ``sinks``: broadcast to ``scores``
    [..., keys], the latter with a last dimension of 1."""
    scores = scores.float() * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    if sinks is None:
        return scores.softmax(-1)
    extra = sinks.float().expand(*scores.shape[:-1], 1)
    return torch.cat((scores, extra), -1).softmax(-1)[..., :-1]
